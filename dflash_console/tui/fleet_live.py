"""The real hosts behind the Hosts screen: a connection each, opened at once within a bound, looked at every few seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ..config import EMBEDDED, Config, load_config
from ..evidence.secrets import mask_text
from ..tasks import end_task
from .drift_badge import drift_badge, drift_evidence
from .fleet import HostView, Look, NewHost
from .link import ChooseUnit, HostLink, LinkError, UnknownHostKey
from .series import Point, Series

if TYPE_CHECKING:
    from ..paths import Paths
    from ..session import HostSession
    from ..state import HostState

INTERVAL_S = 5.0
"""Between two looks at a host's figures."""
LINGER_S = 60.0
"""How long hosts are looked at after they were last asked for."""
AT_ONCE = 16
"""Connections that are opened at the same time; one that hangs ends by its own timeout."""
OPEN_TIMEOUT_S = 45.0
FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 60.0
SHOWN_S = 900.0
"""How far back the small curves go."""


class HostLooker:
    """Looks at one host until closed: opens it, tries again when that fails, keeps what was seen last."""

    def __init__(self, name: str, config: Config, paths: Paths, slots: asyncio.Semaphore) -> None:
        self._name = name
        self._config = replace(config, sampling=replace(config.sampling, interval_s=INTERVAL_S))
        self._paths = paths
        self._slots = slots
        entry = config.hosts.get(name)
        address = "" if name == EMBEDDED else (entry.address if entry else "") or name
        note = (entry.note if entry else "") or ("this machine's embedded engine" if name == EMBEDDED else "")
        self._view = HostView(name, address, entry.unit if entry else "", note, configured=entry is not None or name == EMBEDDED)
        self._session: HostSession | None = None
        self._decode = Series(keep=SHOWN_S)
        self._commit = Series(keep=SHOWN_S)
        self._evidence: tuple[object, ...] = ()
        self._sampled_at = 0.0
        self._pause = FIRST_PAUSE_S
        """Seconds until the next try, when this one fails."""
        self._task: asyncio.Task[None] | None = None

    @property
    def view(self) -> HostView:
        session = self._session
        link = None if session is None or session.embedded else session.transport.link
        since = time.time() - SHOWN_S
        return replace(self._view, link=link, decode=self._decode.since(since), commit=self._commit.since(since))

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"look at {self._name}")

    async def close(self) -> None:
        task, self._task = self._task, None
        await end_task(task)

    async def _run(self) -> None:
        while True:
            again = True
            try:
                await self._look()
            except LinkError as error:
                again = error.again
                asks = isinstance(error, UnknownHostKey | ChooseUnit)
                self._view = replace(self._view, look=Look.FAILED, problem=str(error), needs_answer=asks)
            except Exception as error:
                # One host that the console stumbles over must not stand as "connecting" for ever.
                said = f"an error of the console's own ({type(error).__name__}: {mask_text(str(error))})"
                self._view = replace(self._view, look=Look.FAILED, problem=said, needs_answer=False)
            # What no waiting mends is asked again seldom: somebody may have mended it elsewhere.
            await asyncio.sleep(self._pause if again else LONGEST_PAUSE_S)
            self._pause = min(LONGEST_PAUSE_S, self._pause * 2)

    async def _look(self) -> None:
        """Open the host and follow it. Raises: LinkError."""
        from ..hosts.transport import HostError
        from ..session import open_session
        from .link_errors import link_error

        self._view = replace(self._view, look=Look.CONNECTING if self._view.look is Look.WAITING else self._view.look)
        try:
            async with self._slots, asyncio.timeout(OPEN_TIMEOUT_S):
                session = await open_session(self._name, config=self._config, paths=self._paths, watch=False)
        except HostError as error:
            raise link_error(error) from None
        except TimeoutError:
            raise LinkError(f"{self._name} did not answer within {OPEN_TIMEOUT_S:.0f} s", again=True) from None
        try:
            self._session = session
            self._pause = FIRST_PAUSE_S
            await self._take_past(session)
            self._take(await session.watcher.look())
            await session.watcher.start()
            async for state in session.watcher.states():
                self._take(state)
        finally:
            self._session = None
            await asyncio.shield(session.close())

    async def _take_past(self, session: HostSession) -> None:
        until = time.time()
        samples = await session.history.samples(session.key, until - SHOWN_S, until, 200)
        self._decode.prepend(Point(sample.at, sample.decode_tok_s) for sample in samples)
        self._commit.prepend(Point(sample.at, sample.commit_length) for sample in samples)

    def _take(self, state: HostState) -> None:
        drift = self._view.drift
        evidence = drift_evidence(state)
        if evidence != self._evidence:
            self._evidence, drift = evidence, drift_badge(state)
        self._view = replace(self._view, look=Look.SEEN, state=state, problem="", needs_answer=False, drift=drift)
        if state.metrics is not None and state.metrics.at != self._sampled_at:
            self._sampled_at = state.metrics.at
            self._decode.add(time.time(), state.rates.decode_tok_s)
            self._commit.add(time.time(), None if state.rates.commit_stale else state.rates.commit_length)


class LiveFleet:
    """A :class:`~dflash_console.tui.fleet.Fleet` of the configured hosts, and those that were opened by their address."""

    def __init__(self, config: Config, paths: Paths) -> None:
        """``config``: what is in effect, the command line's options too."""
        self._config = config
        self._paths = paths
        self._extra: dict[str, None] = {}
        self._lookers: dict[str, HostLooker] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._wanted_until = 0.0
        self._besides = ""
        self._keeper: asyncio.Task[None] | None = None
        self._read_at = self._stamp()

    def views(self) -> tuple[HostView, ...]:
        return tuple(self._looker(name).view for name in self._names())

    def watch(self, besides: str) -> None:
        self._besides = besides
        if besides:
            self._extra.setdefault(besides)
        self._wanted_until = time.monotonic() + LINGER_S
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep(), name="hosts")

    async def let_go(self, host: str) -> None:
        self._besides = host
        await self._leave(host)

    async def open(self, host: str, unit: str | None) -> HostLink:
        from .run import open_link

        self._extra.setdefault(host)
        return await open_link(self._config, self._paths, host, unit)

    async def add(self, host: NewHost) -> str:
        from ..config import HostEntry
        from ..config_hosts import add_host

        name = await self._edit(
            lambda: add_host(self._paths.config_file, host.name, HostEntry(host.address, host.unit, host.note))
        )
        await asyncio.to_thread(self._read)
        return name

    async def remove(self, host: str) -> None:
        from ..config_hosts import remove_host

        await self._edit(lambda: remove_host(self._paths.config_file, host))
        self._extra.pop(host, None)
        await asyncio.to_thread(self._read)
        await self._leave(host)

    async def close(self) -> None:
        keeper, self._keeper = self._keeper, None
        await end_task(keeper)
        await self._rest()

    async def _leave(self, host: str) -> None:
        looker = self._lookers.pop(host, None)
        if looker is not None:
            await looker.close()

    async def _edit(self, edit: Callable[[], str]) -> str:
        try:
            return await asyncio.to_thread(edit)
        except (OSError, ValueError) as error:
            raise LinkError(str(error)) from None

    def _names(self) -> tuple[str, ...]:
        configured = self._config.host_names()
        return (*configured, *(name for name in self._extra if name not in configured))

    def _looker(self, name: str) -> HostLooker:
        if name not in self._lookers:
            self._lookers[name] = HostLooker(name, self._config, self._paths, self._slots)
        return self._lookers[name]

    async def _keep(self) -> None:
        """Look at the hosts while somebody wants it; afterwards close them."""
        await asyncio.to_thread(_load_modules)
        while time.monotonic() < self._wanted_until:
            if self._stamp() != self._read_at:
                await asyncio.to_thread(self._read)
            for name in self._names():
                if name != self._besides:
                    self._looker(name).start()
            for name in [name for name in self._lookers if name not in self._names() or name == self._besides]:
                await self._lookers.pop(name).close()
            await asyncio.sleep(1.0)
        self._keeper = None
        await self._rest()

    async def _rest(self) -> None:
        lookers = list(self._lookers.values())
        self._lookers.clear()
        await asyncio.gather(*(looker.close() for looker in lookers))

    def _read(self) -> None:
        """Take the hosts from the file anew; what the command line said stays."""
        self._read_at = self._stamp()
        loaded = load_config(self._paths.config_file)
        if not loaded.problems:
            self._config = replace(self._config, hosts=loaded.config.hosts)

    def _stamp(self) -> int:
        try:
            return self._paths.config_file.stat().st_mtime_ns
        except OSError:
            return 0


def _load_modules() -> None:
    from ..hosts import ssh  # noqa: F401
    from . import live, run  # noqa: F401 - imported for their imports, beside the screens
