"""``hosts``: the configured hosts, and what runs on those that this release can reach."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from ..config import EMBEDDED
from .context import Context
from .options import HostsOptions
from .outcome import CommandError, ExitCode, UsageError
from .output import JsonValue


def run(context: Context, options: HostsOptions) -> ExitCode:
    return asyncio.run(_hosts(context))


async def _hosts(context: Context) -> ExitCode:
    config = context.config
    chosen = context.common.host
    if chosen is None and context.common.unit is not None:
        raise UsageError(f"say on which host {context.common.unit} is: ddtree-console hosts --host NAME --unit NAME")
    # At once: one that does not answer takes its whole time.
    rows = await asyncio.gather(*(_row(context, name) for name in ((chosen,) if chosen is not None else config.host_names())))
    if context.output.json_wanted:
        context.output.document({"default": config.default_host, "hosts": list(rows)})
        return ExitCode.FINE
    context.output.table(
        [
            [
                ("* " if row["name"] == config.default_host else "  ") + str(row["name"]),
                str(row["address"] or "–"),
                str(row["unit"] or "–"),
                str(row["state"]),
                "; ".join(str(said) for said in (row["note"], row["problem"]) if said),
            ]
            for row in rows
        ],
        header=["  host", "address", "unit", "state", ""],
        wrap=True,
    )
    return ExitCode.FINE


async def _row(context: Context, name: str) -> dict[str, JsonValue]:
    entry = context.config.host(name)
    row: dict[str, JsonValue] = {
        "name": name,
        "address": None if name == EMBEDDED else entry.address or name,
        "unit": entry.unit or None,
        "note": entry.note or ("this machine's embedded engine" if name == EMBEDDED else None),
    }
    here = Context(context.name, context.output, replace(context.common, host=name))
    try:
        async with here.session(watch=False) as session:
            state = await session.service.state()
            return {
                **row,
                "unit": session.unit,
                "state": state.state.value,
                "invocation_id": state.invocation_id,
                "problem": None,
            }
    except CommandError as problem:
        if isinstance(problem, UsageError) and context.common.host is not None:
            raise
        return {**row, "state": "unknown", "problem": str(problem)}
