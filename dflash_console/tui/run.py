"""Opening the screens on a host."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from .app import ConsoleApp, ConsoleSettings
from .ended import SignalEnd
from .few_colours import terminal_has_few_colours
from .link import HostLink

if TYPE_CHECKING:
    from ..config import Config, FirstLook
    from ..paths import Paths


LoadConfig = Callable[[], tuple["Config", tuple[str, ...]]]
"""Reads and checks the configuration file: what is in effect, and what is wrong with the file, in sentences."""


def run_console(look: FirstLook, load: LoadConfig, paths: Paths, *, host: str | None, unit: str | None) -> int:
    """Open the screens and stay until they are left; the exit status.

    Args:
        look: what the first paint takes from the configuration file.
        load: called in a thread after the first paint. What is wrong with the file is shown, and the console opens all the same.
    """
    settings = ConsoleSettings(
        theme=look.theme,
        keymap=look.keymap,
        user_themes=paths.themes,
        exports=paths.exports,
        crashes=paths.crashes,
        few_colours=terminal_has_few_colours(),
    )

    async def connect() -> HostLink:
        if app.fleet is None:
            # After the first paint: what it imports is not needed for that.
            from .fleet_live import LiveFleet

            config, problems = await asyncio.to_thread(load)
            app.show_problems(problems)
            app.watching.host = host or config.default_host
            app.fleet = LiveFleet(config, paths)
        return await app.fleet.open(app.watching.host, unit)

    cut_off = ""

    def leave() -> None:
        nonlocal cut_off
        cut_off = app.model.busy
        app.exit()

    app = ConsoleApp(connect, settings, host=host or "")
    signals = SignalEnd(leave)
    signals.run(app.run_async)
    # Where a signal ended the console, its terminal may be gone too.
    with contextlib.suppress(OSError) if signals.number is not None else contextlib.nullcontext():
        if app.own_units:
            from .left_running import left_running

            for sentence in asyncio.run(left_running(paths, app.own_units)):
                print(sentence)
        if cut_off:
            print(f"{cut_off} was under way. It leaves its journal behind: the next start resumes it or rolls back.")
        if app.failure:
            print(app.failure, file=sys.stderr)
    signals.end()
    return app.return_code or 0


async def open_link(config: Config, paths: Paths, host: str | None, unit: str | None) -> HostLink:
    """The session behind the screens. Its modules are imported in a thread, so that the screens stay alive meanwhile.

    Raises:
        LinkError: the host or the unit cannot be opened.
    """
    from ..config import EMBEDDED

    remote = (host or config.default_host) != EMBEDDED
    await asyncio.to_thread(_load_modules, remote)
    from ..hosts.transport import HostError
    from ..session import open_session
    from .link_errors import link_error
    from .live import SessionLink

    try:
        return SessionLink(await open_session(host, unit, config=config, paths=paths, watch=False))
    except HostError as error:
        raise link_error(error) from None


def _load_modules(remote: bool) -> None:
    from . import live  # noqa: F401 - imported for its imports

    if remote:
        # The SSH library alone takes a quarter of a second.
        from ..hosts import ssh  # noqa: F401
