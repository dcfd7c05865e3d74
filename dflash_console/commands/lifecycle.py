"""``start``, ``stop``, ``restart`` and ``rollback``: the service as a whole, confirmed as an apply is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace

from ..apply import (
    ApplyResult,
    PendingOperation,
    carry_out_roll_back,
    pending_operations,
    plan_roll_back,
    restart_service,
    roll_back,
    start_service,
    stop_service,
    way_of_roll_back,
)
from ..hosts.service import RunState
from ..plan import Mode, PlanError
from ..session import HostSession
from .change import consent, refuse_blocked
from .context import Context
from .operation import carry_out
from .operation_output import StagePrinter, nothing_changed
from .options import LifecycleOptions
from .outcome import CommandError, ExitCode
from .plan_output import print_plan


def run(context: Context, options: LifecycleOptions) -> ExitCode:
    context.begin_change()
    return asyncio.run(_run(context, options))


async def _run(context: Context, options: LifecycleOptions) -> ExitCode:
    async with context.session() as session:
        await session.watcher.settled()
        if context.name == "rollback":
            return await _roll_back(context, session, options)
        if (pending := _cut_off(context, session)) is not None:
            ways = f"apply --resume goes on with it, rollback {await way_of_roll_back(session)}"
            context.output.note(f"ddtree-console: {pending.words}; {ways}")
        if question := _question(context, session):
            if not context.output.json_wanted:
                context.output.line(question)
            consent(context, options.yes, "Go ahead?")
        return await carry_out(context, _work(context, session, options))


def _cut_off(context: Context, session: HostSession) -> PendingOperation | None:
    found = pending_operations(context.paths, session.host, session.unit)
    return found[-1] if found else None


def _question(context: Context, session: HostSession) -> str:
    """What would happen, when that can hurt; a start of a stopped service cuts nobody off and changes no file."""
    state = session.watcher.state
    cut = _cut_words(session)
    if context.name == "start":
        return ""
    if state.service is None or state.service.value.state is not RunState.RUNNING:
        return f"{session.unit} does not run; {context.name} it all the same." if context.name == "restart" else ""
    return f"{'Restarts' if context.name == 'restart' else 'Stops'} {session.unit} (pid {state.service.value.main_pid}){cut}."


def _cut_words(session: HostSession) -> str:
    """What a stop or a restart cuts off, to be put behind its sentence; empty when nothing runs."""
    state = session.watcher.state
    running = state.rates.running or (state.loads.value.running if state.loads is not None else None) or 0
    return f", {running} running requests with it" if running else ""


def _work(context: Context, session: HostSession, options: LifecycleOptions) -> Awaitable[ApplyResult]:
    show = StagePrinter(context.output)
    drain = options.drain or None
    match context.name:
        case "start":
            return _or_back(session, start_service(session, on_event=show), options, show)
        case "restart":
            return _or_back(session, restart_service(session, drain=drain, on_event=show), options, show)
        case _:
            return stop_service(session, drain=drain, on_event=show)


async def _roll_back(context: Context, session: HostSession, options: LifecycleOptions) -> ExitCode:
    """Undo what was cut off, else back to the last confirmed configuration: by a plan that is shown before anybody is asked."""
    try:
        plan = await plan_roll_back(session)
    except PlanError as problem:
        raise CommandError(str(problem)) from None
    if plan is not None:
        if not context.output.json_wanted:
            print_plan(context.output, plan)
            context.output.line()
            if plan.mode is Mode.RESTART:
                context.output.line(f"Restarts {session.unit}{_cut_words(session)}.")
        if plan.blocked:
            return refuse_blocked(context, plan)
        consent(context, options.yes, "Go ahead?")
    return await carry_out(context, carry_out_roll_back(session, plan, on_event=StagePrinter(context.output)))


async def _or_back(
    session: HostSession, work: Awaitable[ApplyResult], options: LifecycleOptions, show: StagePrinter
) -> ApplyResult:
    """The start; when it is not confirmed and that was asked for, the last confirmed configuration instead."""
    result = await work
    if result.confirmed or not options.rollback_on_failure or nothing_changed(result):
        return result
    back = await roll_back(session, on_event=show)
    return replace(result, rollback=back, rolled_back=back.confirmed)
