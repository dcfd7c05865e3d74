"""A signal that ends the console leaves the terminal as it was, as quitting by its key does.

A service manager, ``timeout`` and a session that closes end a program so. Left to itself the terminal would stay on the alternate
screen, with every move of the mouse typed into the shell.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import termios
from collections.abc import Awaitable, Callable
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
PATIENCE_S = 10
"""Seconds to leave in the proper way; a link that hangs, or a terminal that is gone, could hold it up for ever."""
_RESET = (
    "\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l"  # no mouse reports
    "\x1b[?2004l\x1b[?2048l\x1b[?1004l\x1b[<u"  # no brackets around pastes, no reports of size and focus, plain keys
    "\x1b[?7h\x1b[?1049l\x1b[?25h"  # lines wrap, the shell's own screen, its cursor
)


class SignalEnd:
    """What the signals that end a program do while the screens are open.

    The first one leaves them properly. A second one, or one that has had :data:`PATIENCE_S`, ends the process at once, and even
    then the terminal is put right first.
    """

    def __init__(self, leave: Callable[[], None]) -> None:
        """
        Args:
            leave: called in the event loop; begins to leave the screens.
        """
        self._leave = leave
        self._loop: asyncio.AbstractEventLoop | None = None
        self._attributes = _attributes()
        self.number: int | None = None
        """The signal that came."""

    def run(self, screens: Callable[[], Awaitable[object]]) -> None:
        """Open the screens in an event loop of their own and stay until they are left."""
        # Whoever had one ignored, as ``nohup`` does, means it.
        before = {number: signal.getsignal(number) for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN}
        for number in before:
            signal.signal(number, self._came)
        signal.signal(signal.SIGALRM, self._now)
        try:
            asyncio.run(self._stay(screens))
        finally:
            self._loop = None
            for number, handler in before.items():
                signal.signal(number, handler)

    async def _stay(self, screens: Callable[[], Awaitable[object]]) -> None:
        self._loop = asyncio.get_running_loop()
        await screens()

    def end(self) -> None:
        """End the process by the signal that came, if one did: whoever sent it sees that it worked."""
        if self.number is None:
            return
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        self._die()

    def _came(self, number: int, frame: FrameType | None) -> None:
        again, self.number = self.number is not None, self.number or number
        if again:
            self._now(number, frame)
            return
        if self._loop is None:
            self._die()
            return
        signal.alarm(PATIENCE_S)
        # Not from here: this may be in the middle of anything, and the loop may be asleep.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._leave)

    def _now(self, number: int, frame: FrameType | None) -> None:
        # A terminal that takes nothing any more must not keep the process either.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(1)
        with contextlib.suppress(OSError):
            os.write(2, _RESET.encode())
        with contextlib.suppress(termios.error):
            if self._attributes is not None:
                termios.tcsetattr(0, termios.TCSANOW, self._attributes)
        self._die()

    def _die(self) -> None:
        number = self.number or signal.SIGTERM
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def _attributes() -> list[int | list[bytes | int]] | None:
    try:
        return termios.tcgetattr(0)
    except termios.error:
        return None
