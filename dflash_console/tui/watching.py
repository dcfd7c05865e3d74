"""One host behind the screens: opened, tried again while it cannot be reached, its snapshots handed on until it is left."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from . import messages
from .series import SPANS
from .work import begin

if TYPE_CHECKING:
    from .host_app import HostApp
    from .link import HostLink, UnknownHostKey

FIRST_PAUSE_S = 2.0
LONGEST_PAUSE_S = 30.0

OpenLink = Callable[[], Awaitable["HostLink"]]


class Watching:
    """Posts what it finds to the console, each message signed with itself: one that comes late is known as an old host's."""

    def __init__(self, app: HostApp, open_link: OpenLink, host: str = "", unit: str | None = None) -> None:
        """``host``: its name, as far as it is known before it answers."""
        self._app = app
        self._open_link = open_link
        self.host = host
        self.unit = unit
        self.link: HostLink | None = None
        self.painted = asyncio.Event()
        """Set when the first snapshot is on the screen; what comes next waits for that."""
        self._again = asyncio.Event()
        self._closed = False

    async def run(self) -> None:
        """Until cancelled. Failures become sentences."""
        from .link import LinkError

        try:
            self.link = link = await self._open()
            try:
                async for state in link.states():
                    self._app.post_message(messages.StateArrived(state, self))
                    if not self.painted.is_set():
                        # Whatever comes next is imported and read after the first snapshot is on the screen.
                        await self.painted.wait()
                        collect_garbage()
                        begin(self._app, partial(self._look_back, link), "looking back", group="past")
            except LinkError as error:
                self._app.post_message(messages.LinkFailed(str(error), source=self))
        finally:
            collect_garbage()

    def try_now(self) -> None:
        """Do not wait for the next try."""
        if self.link is None:
            self._again.set()
        else:
            begin(self._app, partial(self._reconnect, self.link), "connecting", group="connect", exclusive=True)

    async def close(self) -> None:
        """Leave the host; what was asked of it goes on there."""
        self._closed = True
        if self.link is not None:
            await self.link.close()

    async def _open(self) -> HostLink:
        from .link import ChooseUnit, LinkError, UnknownHostKey

        pause = FIRST_PAUSE_S
        while True:
            self._again.clear()
            try:
                return await self._open_link()
            except UnknownHostKey as error:
                if await self._accepted(error):
                    continue
                self._failed(f"{error}. It was not accepted, so nothing was sent to the host", None)
                await self._again.wait()
            except ChooseUnit as error:
                self._failed(str(error), None)
                self._app.post_message(messages.UnitWanted(error.units, self))
                await self._again.wait()
            except LinkError as error:
                self._failed(str(error), time.monotonic() + pause if error.again else None)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause if error.again else None):
                        await self._again.wait()
                pause = min(LONGEST_PAUSE_S, pause * 2)

    def _failed(self, sentence: str, next_try: float | None) -> None:
        self._app.post_message(messages.LinkFailed(sentence, next_try, self))

    async def _accepted(self, error: UnknownHostKey) -> bool:
        """Ask about a host's key; whether it is known now."""
        from .link import LinkError
        from .screens.host_key import HostKeyScreen

        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def answered(yes: bool | None) -> None:
            if not answer.done():
                answer.set_result(bool(yes))

        screen = HostKeyScreen(error.question)
        self._app.push_screen(screen, answered)
        try:
            if not await answer:
                return False
        finally:
            if screen in self._app.screen_stack:
                # The host was left while the question stood.
                screen.withdraw()
        try:
            await error.trust()
        except LinkError as problem:
            self._app.notify(str(problem), title="Host key", severity="error", timeout=12, markup=False)
            return False
        return True

    async def _reconnect(self, link: HostLink) -> None:
        from .link import LinkError, UnknownHostKey

        try:
            await link.reconnect()
        except UnknownHostKey as error:
            if await self._accepted(error):
                await self._reconnect(link)
        except LinkError as error:
            self._app.notify(str(error), title="Host", severity="warning", timeout=8, markup=False)

    async def _look_back(self, link: HostLink) -> None:
        """What was before: unfinished operations and history. After the first snapshot, which nothing may delay."""
        from .link import LinkError

        try:
            self._app.post_message(messages.LinkOpened(await link.pending(), self))
            self._app.post_message(messages.PastArrived(await link.past(SPANS[-1]), self))
        except LinkError as error:
            self._app.post_message(messages.LinkFailed(str(error), source=self))
        # Last, because its import takes longest, and what it draws grows a point a second.
        self._app.load_plots()


def collect_garbage() -> None:
    """End the start, during which the collector may have been off. What it left behind stays, so it is never looked at again:
    a full collection would hold a repaint up by tens of milliseconds."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
