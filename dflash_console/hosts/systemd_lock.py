"""One operation on a unit at a time: a lock on its host, held by a process that ends with the connection.

The process holds a flock(2) and prints a dot every two seconds, so it dies of a closed connection. A connection that is dead and
not closed (a laptop that was shut) is told by the lock's age: the console touches it, and the process gives up when that stops.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from .systemd_manager import Manager
from .transport import HostError

FOLDER = "/run/ddtree-console"
"""Gone after a restart of the host, as the operations are that could hold a lock."""
LEASE_S = 90
TOUCH_S = 20.0
_SCRIPT = """
umask 022
lock=$1 holder=$2 lease=$3 spare=$4
mkdir -p -- "$(dirname -- "$lock")" 2>/dev/null
writes=yes
if (: >> "$lock") 2>/dev/null; then exec 9>> "$lock"
elif [ -r "$lock" ]; then exec 9< "$lock"; writes=
else lock=$spare; mkdir -p -- "$(dirname -- "$lock")"; exec 9>> "$lock" || exit 4; fi
command -v flock > /dev/null || { printf 'no flock\\n'; exit 5; }
flock -w 3 9 || { printf 'held %s\\n' "$(head -c 400 -- "$lock" | tr '\\n' ' ')"; exit 0; }
[ -z "$writes" ] || printf '%s since %s\\n' "$holder" "$(date '+%F %T %Z')" > "$lock"
printf 'locked %s\\n' "$lock"
while printf .; do
  sleep 2 9>&-
  [ -z "$writes" ] || [ $(($(date +%s) - $(stat -c %Y -- "$lock"))) -le "$lease" ] || exit 3
done
"""


@contextlib.asynccontextmanager
async def hold_lock(manager: Manager, unit: str, holder: str) -> AsyncIterator[None]:
    """Hold the unit for one operation.

    Raises:
        HostError: someone else holds it (who, since when), or no lock can be had on that host.
    """
    lock = _Lock(manager, unit, " ".join(holder.split()))
    await lock.begin()
    try:
        yield
    finally:
        await lock.end()


class _Lock:
    def __init__(self, manager: Manager, unit: str, holder: str) -> None:
        self._manager = manager
        self._unit = unit
        self._holder = holder
        self._path = ""
        self._task: asyncio.Task[None] | None = None
        self._held = asyncio.Event()

    async def begin(self) -> None:
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
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, HostError):
                await task

    async def _keep(self) -> None:
        """Take the lock, and take it again when the connection came back: an operation outlives a cut of some seconds."""
        while True:
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
        argv = ["sh", "-c", _SCRIPT, "sh", path, self._holder, str(LEASE_S), spare]
        async with self._manager.transport.stream(await self._manager.root(argv) or argv) as chunks:
            toucher: asyncio.Task[None] | None = None
            said = b""
            try:
                async for chunk in chunks:
                    if toucher is not None:
                        continue
                    said += chunk
                    if b"\n" in said:
                        self._path = self._taken(said.partition(b"\n")[0].decode("utf-8", "replace"))
                        self._held.set()
                        toucher = asyncio.create_task(self._touch())
            finally:
                if toucher is not None:
                    toucher.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await toucher
        if not self._held.is_set():
            tried = path if path == spare else f"{path} and {spare}"
            raise HostError(f"no lock can be had on {self._manager.transport.name}: this user may not write {tried}")

    def _taken(self, said: str) -> str:
        word, _, rest = said.partition(" ")
        if word == "locked":
            return rest
        if word == "held":
            raise HostError(f"{self._unit} is being changed by {rest.strip() or 'someone'}; wait until that is done")
        raise HostError(f"no lock can be had on {self._manager.transport.name}: the program flock (util-linux) is not there")

    async def _touch(self) -> None:
        while True:
            await asyncio.sleep(TOUCH_S)
            with contextlib.suppress(HostError):
                await self._manager.run_root(["touch", "-c", "--", self._path])
