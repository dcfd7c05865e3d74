"""``rebase`` and ``release``: what becomes of the console's own drop-in when the unit under it has changed."""

from __future__ import annotations

import asyncio

from ..apply import apply_plan, plan_rebase, plan_release
from ..plan import PlanError
from .change import consent, refuse_blocked
from .context import Context
from .operation import carry_out
from .operation_output import StagePrinter
from .options import LifecycleOptions
from .outcome import CommandError, ExitCode
from .plan_output import print_plan


def run(context: Context, options: LifecycleOptions) -> ExitCode:
    context.refuse_when_read_only()
    context.output.finish_unread()
    return asyncio.run(_run(context, options))


async def _run(context: Context, options: LifecycleOptions) -> ExitCode:
    output = context.output
    async with context.session() as session:
        await session.watcher.settled()
        try:
            plan = await (plan_rebase(session) if context.name == "rebase" else plan_release(session))
        except PlanError as problem:
            raise CommandError(str(problem)) from None
        if not output.json_wanted:
            print_plan(output, plan)
            output.line()
        if plan.blocked:
            return refuse_blocked(context, plan)
        consent(context, options.yes, "Go ahead?")
        work = apply_plan(
            session,
            plan,
            rollback_on_failure=options.rollback_on_failure or None,
            drain=options.drain or None,
            on_event=StagePrinter(output),
            what=context.name,
        )
        return await carry_out(context, work)
