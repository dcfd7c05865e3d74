"""``rebase`` and ``release``: what becomes of the console's own drop-in when the unit under it has changed."""

from __future__ import annotations

import asyncio

from ..apply import plan_rebase, plan_release
from ..plan import PlanError
from .change import carry_out_plan
from .context import Context
from .options import LifecycleOptions
from .outcome import CommandError, ExitCode


def run(context: Context, options: LifecycleOptions) -> ExitCode:
    context.begin_change()
    return asyncio.run(_run(context, options))


async def _run(context: Context, options: LifecycleOptions) -> ExitCode:
    async with context.session() as session:
        await session.watcher.settled()
        try:
            plan = await (plan_rebase(session) if context.name == "rebase" else plan_release(session))
        except PlanError as problem:
            raise CommandError(str(problem)) from None
        return await carry_out_plan(context, session, plan, options, "Go ahead?")
