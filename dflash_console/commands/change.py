"""``plan`` and ``apply``: what a change would do, and doing it, confirmed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..knobs import KnobError, Value, parse_settings
from ..plan import Change, Mode, Plan, PlanError
from .context import Context
from .options import ApplyOptions, LifecycleOptions, PlanOptions
from .outcome import CommandError, ExitCode, UsageError
from .plan_output import finding_json, plan_json, print_plan

if TYPE_CHECKING:
    from ..session import HostSession


def run(context: Context, options: PlanOptions) -> ExitCode:
    if isinstance(options, ApplyOptions):
        context.begin_change()
        if options.resume:
            return asyncio.run(_resume(context, options))
    settings = wanted_settings(context, options)
    if isinstance(options, ApplyOptions):
        return asyncio.run(_apply(context, options, settings))
    return asyncio.run(_plan(context, options, settings))


def wanted_settings(context: Context, options: PlanOptions) -> dict[str, Value]:
    """The profile's settings, and those of the command line over them.

    Raises:
        UsageError: nothing is to be changed, or a setting or profile is not known.
    """
    try:
        settings = context.config.profile(options.profile) if options.profile is not None else {}
        settings.update(parse_settings(options.settings))
    except KnobError as problem:
        raise UsageError(str(problem)) from None
    if not settings:
        raise UsageError(f"nothing to change: say what, as in: ddtree-console {context.name} --set tree_budget=16")
    return settings


async def make_plan(
    session: HostSession, settings: dict[str, Value], mode: Mode, *, persist: bool = False, commit_confirm: bool = False
) -> Plan:
    """The plan, made from everything that can be read now.

    Raises:
        CommandError: no plan can be made.
    """
    await session.watcher.settled()
    try:
        # Everything was asked a moment ago; asking again would only make a hot change slower.
        return await session.plan(Change(settings, mode, persist, commit_confirm), refresh=False)
    except PlanError as problem:
        raise CommandError(str(problem)) from None


async def _plan(context: Context, options: PlanOptions, settings: dict[str, Value]) -> ExitCode:
    async with context.session() as session:
        plan = await make_plan(session, settings, Mode(options.mode.value), commit_confirm=options.commit_confirm)
    if context.output.json_wanted:
        context.output.document(plan_json(plan))
    else:
        print_plan(context.output, plan)
    return ExitCode.FAILED if plan.blocked else ExitCode.FINE


async def _apply(context: Context, options: ApplyOptions, settings: dict[str, Value]) -> ExitCode:
    async with context.session() as session:
        mode, undo = Mode(options.mode.value), options.commit_confirm
        plan = await make_plan(session, settings, mode, persist=options.persist, commit_confirm=undo)
        return await carry_out_plan(context, session, plan, options, "Apply this?")


async def carry_out_plan(
    context: Context, session: HostSession, plan: Plan, options: ApplyOptions | LifecycleOptions, question: str
) -> ExitCode:
    """Show the plan, ask, and carry it out under the command's name.

    Raises:
        CommandError: the user says no, or it could not begin.
    """
    from ..apply import apply_plan
    from .operation import carry_out
    from .operation_output import StagePrinter

    output = context.output
    if not output.json_wanted:
        print_plan(output, plan)
        output.line()
    if plan.blocked:
        return refuse_blocked(context, plan)
    consent(context, options.yes, question)
    work = apply_plan(
        session,
        plan,
        # What the command line does not ask for is left to the configuration.
        rollback_on_failure=options.rollback_on_failure or None,
        drain=options.drain or None,
        on_event=StagePrinter(output),
        what=context.name,
    )
    return await carry_out(context, work)


def refuse_blocked(context: Context, plan: Plan) -> ExitCode:
    """An error among the findings: nothing is changed, and the reason is the first of them."""
    message = f"nothing was changed: {plan.errors[0].message}"
    if context.output.json_wanted:
        findings = [finding_json(finding) for finding in plan.findings]
        context.output.document(
            {
                "confirmed": False,
                "verdict": "refused",
                "reason": message,
                "findings": findings,
                "stages": [],
                "rolled_back": False,
            }
        )
    context.output.note(f"ddtree-console: {message}")
    return ExitCode.FAILED


def consent(context: Context, yes: bool, question: str) -> None:
    """Somebody has seen what will happen and agreed.

    Raises:
        UsageError: there is nobody to ask, and ``--yes`` was not given.
        CommandError: the answer was no.
    """
    if yes:
        return
    if not context.output.interactive:
        raise UsageError(f"{context.name} changes the host and there is no terminal to ask on: look at the plan, then add --yes")
    if not context.output.ask(question):
        raise CommandError("nothing was changed")


async def _resume(context: Context, options: ApplyOptions) -> ExitCode:
    from ..apply import pending_operations, resume
    from .operation import carry_out
    from .operation_output import StagePrinter

    if options.settings or options.profile:
        raise UsageError("--resume goes on with an operation as it was planned; give it without --set and --profile")
    async with context.session() as session:
        pending = pending_operations(context.paths, session.host, session.unit)
        if not pending:
            raise CommandError(f"no operation on {session.unit} was cut off, so there is nothing to resume")
        context.output.note(pending[-1].words)
        consent(context, options.yes, "Go on with it?")
        return await carry_out(context, resume(session, pending[-1], on_event=StagePrinter(context.output)))
