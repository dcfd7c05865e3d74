"""``logs``: stored lines of the engine's log, and new ones as they come."""

from __future__ import annotations

import asyncio

from ..evidence.journal import LogLine
from ..evidence.secrets import mask_text
from ..evidence.terminal_text import clean_line
from .context import Context
from .options import LogsOptions
from .outcome import CommandError, ExitCode
from .output import JsonValue, Output, Tone

ERROR, WARNING = 3, 4
"""syslog priorities (syslog(3))."""


def run(context: Context, options: LogsOptions) -> ExitCode:
    return asyncio.run(_logs(context, options))


async def _logs(context: Context, options: LogsOptions) -> ExitCode:
    output = context.output
    async with context.session(watch=False) as session:
        service = session.service
        invocation = None
        if options.this_start:
            invocation = (await service.state()).invocation_id
            if invocation is None:
                raise CommandError(f"{session.unit} was never started, so there is no log of this start")
        # The end is noted before the stored lines are read: a line written in between is shown once more, none is lost.
        end = await service.cursor()
        lines = await service.lines(invocation_id=invocation, limit=options.lines) if options.lines else ()
        for line in lines:
            # Following begins with what is to be told of the outputs.
            if not options.follow or line.origin not in ("console", "unseen"):
                show(output, line)
        if options.follow:
            try:
                newest = lines[-1].cursor if lines else ""
                async for line in service.follow(cursor=newest or end, invocation_id=invocation):
                    show(output, line)
            except asyncio.CancelledError:
                # Ctrl-C is how following ends; it is no failure.
                return ExitCode.FINE
        elif not lines and options.lines and not output.json_wanted:
            output.note(f"{session.unit} has no stored log lines")
    return ExitCode.FINE


def show(output: Output, line: LogLine) -> None:
    """One line: as a JSON object, or as text without what could act on the terminal. Secrets are masked in both."""
    if output.json_wanted:
        output.record(line_json(line))
        return
    text = mask_text(clean_line(line.text))
    tone = Tone.BAD if line.priority <= ERROR else Tone.CAUTION if line.priority == WARNING else None
    if line.origin == "gap":
        text, tone = f"… {text or 'lines are missing here'}", Tone.CAUTION
    elif line.origin != "engine":
        text, tone = f"[{line.origin}] {text}", tone or Tone.FAINT
    output.line(text, tone)


def line_json(line: LogLine) -> dict[str, JsonValue]:
    return {
        "text": mask_text(line.text),
        "at": line.at,
        "cursor": line.cursor,
        "invocation_id": line.invocation_id,
        "pid": line.pid,
        "priority": line.priority,
        "origin": line.origin,
        "number": line.number,
    }
