"""Running an operation for a command: its stages printed, its end as an exit code, and what Ctrl-C leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from ..apply import ApplyResult
from ..plan import PlanError
from .context import Context
from .operation_output import exit_code, print_result, result_json
from .outcome import CommandError, ExitCode

HOW_TO_GO_ON = (
    "it goes on with: ddtree-console apply --resume; ddtree-console rollback undoes what it has changed, or goes back further "
    "where that is nothing, and shows first which"
)


async def carry_out(context: Context, work: Awaitable[ApplyResult]) -> ExitCode:
    """Wait for ``work`` and print how it ended.

    Raises:
        CommandError: it could not begin, or it was interrupted; its journal then stays on disk.
    """
    try:
        result = await work
    except PlanError as problem:
        raise CommandError(str(problem)) from None
    except asyncio.CancelledError:
        raise CommandError(
            f"interrupted: the operation was left as it was and noted on disk; {HOW_TO_GO_ON}", ExitCode.NOT_CONFIRMED
        ) from None
    if context.output.json_wanted:
        context.output.document(result_json(result))
    else:
        print_result(context.output, result)
    return exit_code(result)
