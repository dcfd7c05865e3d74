"""One operation on a unit at a time: a lock on its host, held by a process that ends with the connection.

The process holds a flock(2) and prints a dot every two seconds, so it dies of a closed connection. A connection that is dead and
not closed (a laptop that was shut) is told by the lock's age: the console touches it, and the process gives up when that stops.
Then somebody else may have the unit. So the lock is assured before each change: it is still held, or was taken again and nobody
had it in between, which its text shows.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from .systemd_manager import Manager
from .transport import HostError

FOLDER = "/run/ddtree-console"
"""Gone after a restart of the host, as the operations are that could hold a lock."""
LEASE_S = 90
TOUCH_S = 20.0
FRESH_S = 10.0
"""A sign of life that is older proves nothing any more. Well under the lease."""
ASSURE_S = 30.0
"""For a lock that was lost with the connection to be had again."""
_SCRIPT = """
umask 022
lock=$1 holder=$2 lease=$3 spare=$4 mine=$5
mkdir -p -- "$(dirname -- "$lock")" 2>/dev/null
writes=yes
if (: >> "$lock") 2>/dev/null; then exec 9>> "$lock"
elif [ -r "$lock" ]; then exec 9< "$lock"; writes=
else lock=$spare; mkdir -p -- "$(dirname -- "$lock")"; exec 9>> "$lock" || exit 4; fi
command -v flock > /dev/null || { printf 'no flock\\n\\n'; exit 5; }
said() { head -c 2000 -- "$lock" | tr '\\n' ' ' | sed 's/ *$//'; }
flock -w 3 9 || { printf 'held %s\\n%s\\n' "$lock" "$(said)"; exit 0; }
if [ -n "$mine" ] && [ -n "$(said)" ] && [ "$(said)" != "$mine" ]; then printf 'taken %s\\n%s\\n' "$lock" "$(said)"; exit 0; fi
[ -z "$writes" ] || [ -n "$(said)" -a "$(said)" = "$mine" ] || printf '%s since %s\\n' "$holder" "$(date '+%F %T %Z')" > "$lock"
[ -z "$writes" ] || touch -- "$lock"
printf 'locked %s\\n%s\\n' "$lock" "${writes:+$(said)}"
while printf .; do
  sleep 2 9>&-
  [ -z "$writes" ] || [ $(($(date +%s) - $(stat -c %Y -- "$lock"))) -le "$lease" ] || exit 3
done
"""


class UnitLock:
    """A lock that is held. Made by :func:`hold_lock`."""

    def __init__(self, manager: Manager, unit: str, holder: str) -> None:
        self._manager = manager
        self._unit = unit
        self._holder = holder
        self._path = ""
        self._mine = ""
        """The lock's text as this holder wrote it; empty = it may not write there."""
        self._taken_by = ""
        self._sign_at = 0.0
        """When the host last said that the lock is held."""
        self._task: asyncio.Task[None] | None = None
        self._held = asyncio.Event()

    async def begin(self) -> None:
        """Take it. Raises: HostError."""
        self._task = asyncio.create_task(self._keep())
        waiting = asyncio.create_task(self._held.wait())
        try:
            await asyncio.wait((self._task, waiting), return_when=asyncio.FIRST_COMPLETED)
            if not self._held.is_set():
                self._task.result()
                raise HostError(f"the lock of {self._unit} on {self._manager.transport.name} ended as soon as it was taken")
        except BaseException:
            await self.end()
            raise
        finally:
            waiting.cancel()

    async def end(self) -> None:
        """Give it back."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, HostError):
                await task

    async def assure(self) -> None:
        """Before a change: the unit is still this operation's, and was all the time.

        Raises:
            HostUnreachable: the link is down, so nobody can tell.
            HostError: somebody else has or had it meanwhile, or it could not be had again.
        """
        until = time.monotonic() + ASSURE_S
        while not self._taken_by and _now() - self._sign_at > FRESH_S:
            await self._manager.transport.run(["true"])
            if time.monotonic() >= until:
                raise HostError(
                    f"the lock of {self._unit} was lost with the connection and cannot be had again: nothing more is changed"
                )
            await asyncio.sleep(0.2)
        if self._taken_by:
            raise HostError(
                f"while the link to {self._manager.transport.name} was down, {self._unit} was taken over by {self._taken_by}: "
                "nothing more is changed from here, look at what they did"
            )

    async def _keep(self) -> None:
        """Take the lock, and take it again when the connection came back: an operation outlives a cut of some seconds."""
        while not self._taken_by:
            try:
                await self._hold()
            except HostError:
                if not self._held.is_set():
                    raise
            await asyncio.sleep(1.0)

    async def _hold(self) -> None:
        facts = await self._manager.facts()
        spare = f"{facts.runtime}/ddtree-console/{self._unit}.lock"
        path = f"{FOLDER}/{self._unit}.lock" if self._manager.scope == "system" else spare
        argv = ["sh", "-c", _SCRIPT, "sh", path, self._holder, str(LEASE_S), spare, self._mine]
        async with self._manager.transport.stream(await self._manager.root(argv) or argv) as chunks:
            toucher: asyncio.Task[None] | None = None
            said = b""
            try:
                async for chunk in chunks:
                    self._sign_at = _now() if toucher is not None else self._sign_at
                    if toucher is not None:
                        continue
                    said += chunk
                    if said.count(b"\n") >= 2:
                        if not self._take(*said.decode("utf-8", "replace").split("\n")[:2]):
                            return
                        toucher = asyncio.create_task(self._touch())
            finally:
                if toucher is not None:
                    toucher.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await toucher
        if not self._held.is_set():
            tried = path if path == spare else f"{path} and {spare}"
            raise HostError(f"no lock can be had on {self._manager.transport.name}: this user may not write {tried}")

    def _take(self, answer: str, text: str) -> bool:
        """Take the host's answer in; whether the lock is held by the process that gave it. Raises: HostError."""
        word, _, path = answer.partition(" ")
        first = not self._held.is_set()
        if word == "locked":
            self._path, self._mine, self._sign_at = path, text, _now()
            self._held.set()
            return True
        if word == "no":
            raise HostError(f"no lock can be had on {self._manager.transport.name}: the program flock (util-linux) is not there")
        if first:
            raise HostError(f"{self._unit} is being changed by {text or 'someone'}; wait until that is done")
        if text == self._mine:
            # The process of the connection that was lost: it goes when it notices, and holds the unit for this one until then.
            self._sign_at = _now()
        elif self._mine:
            self._taken_by = text or "someone"
        return False

    async def _touch(self) -> None:
        while True:
            await asyncio.sleep(TOUCH_S)
            with contextlib.suppress(HostError):
                await self._manager.run_root(["touch", "-c", "--", self._path])


@contextlib.asynccontextmanager
async def hold_lock(manager: Manager, unit: str, holder: str) -> AsyncIterator[UnitLock]:
    """Hold the unit for one operation.

    Raises:
        HostError: someone else holds it (who, since when), or no lock can be had on that host.
    """
    lock = UnitLock(manager, unit, " ".join(holder.split())[:300])
    await lock.begin()
    try:
        yield lock
    finally:
        await lock.end()


def _now() -> float:
    """Seconds of a clock that goes on while this machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.time()
