"""``doctor``: what would keep the console or the engine from working, here and on the host."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..config import Config, first_look
from ..doctor import Check, CheckStatus, check_machine
from .context import Context
from .options import DoctorOptions
from .outcome import CommandError, ExitCode
from .output import Cell, Output, Tone

if TYPE_CHECKING:
    from ..paths import Paths
    from ..session import HostSession
    from ..state import HostState

_MARKS = {
    CheckStatus.OK: Cell("✓", Tone.GOOD),
    CheckStatus.WARNING: Cell("!", Tone.CAUTION),
    CheckStatus.FAILED: Cell("✗", Tone.BAD),
    CheckStatus.UNKNOWN: Cell("?", Tone.FAINT),
}


def run(context: Context, options: DoctorOptions) -> ExitCode:
    return asyncio.run(_doctor(context))


async def _doctor(context: Context) -> ExitCode:
    from ..host_checks import check_host, check_launcher
    from ..hosts.local import LocalTransport

    transport = LocalTransport()
    machine = await check_machine(transport, context.paths, context.loaded, os.environ, _terminal_size(), _looks(context.paths))
    host: tuple[Check, ...]
    code = ExitCode.FINE
    try:
        async with context.session() as session:
            name = session.host
            if session.embedded and any(check.name == "engine packages" and check.status is CheckStatus.OK for check in machine):
                machine += await check_launcher(transport)
            state = await session.watcher.settled()
            host = await check_host(session.transport, state)
            if not session.embedded:
                host = (*await _remote(session, state), *host)
    except CommandError as problem:
        name = context.common.host or context.config.default_host
        host = (Check("host", CheckStatus.FAILED, str(problem)),)
        code = problem.code
    if context.output.json_wanted:
        rows = [("machine", check) for check in machine] + [("host", check) for check in host]
        context.output.document(
            {"checks": [{"of": of, "name": one.name, "status": one.status.value, "message": one.message} for of, one in rows]}
        )
    else:
        print_checks(context.output, "this machine", machine)
        context.output.line()
        print_checks(context.output, name, host)
    if code is ExitCode.FINE and any(check.status is CheckStatus.FAILED for check in (*machine, *host)):
        code = ExitCode.FAILED
    return code


def _looks(paths: Paths) -> tuple[str, ...]:
    """What the screens would say of the user's theme and keys; they are imported where there is anything to say."""
    look = first_look(paths.config_file)
    if not look.keymap and look.theme == Config.theme and not any(paths.themes.glob("*.toml")):
        return ()
    try:
        from ..tui.settings import ConsoleSettings, all_problems
    except ImportError:
        # What is not installed is another check's finding.
        return ()
    return all_problems(ConsoleSettings(theme=look.theme, keymap=look.keymap, user_themes=paths.themes))


async def _remote(session: HostSession, state: HostState) -> tuple[Check, ...]:
    from ..hosts.systemd import SystemdService
    from ..remote_checks import check_remote

    service = session.service
    return await check_remote(session.transport, service, state) if isinstance(service, SystemdService) else ()


def print_checks(output: Output, title: str, checks: Sequence[Check]) -> None:
    output.line(title, Tone.STRONG)
    output.table([[_MARKS[check.status], check.name, check.message] for check in checks], indent=2, wrap=True)


def _terminal_size() -> tuple[int, int] | None:
    if not sys.stdout.isatty():
        return None
    size = shutil.get_terminal_size()
    return size.columns, size.lines
