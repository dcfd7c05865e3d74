"""The console as a user starts it: a program with a home folder of its own, watched by the journal that it writes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .records import WANTED

PROGRAM = Path(sys.executable).with_name("ddtree-console")
PATIENCE_S = 150.0
"""A console that has not ended by then hangs."""
LOOK_S = 0.004


class Missed(Exception):
    """The console did not come to the point at which the fault was to strike."""


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    """Exit status; minus the signal that ended it."""
    out: str
    err: str
    seconds: float

    @property
    def document(self) -> dict[str, object] | None:
        """Its JSON; ``None`` when it printed none."""
        try:
            value = json.loads(self.out)
        except ValueError:
            return None
        return value if isinstance(value, dict) else None


class Console:
    """One user's console: their home folder, their ``~/.ssh``, their configuration file."""

    def __init__(self, home: Path, words: tuple[str, ...], config: str) -> None:
        self.home = home
        self.words = words
        """``--host`` and ``--unit``."""
        self.state = home / "ddtree"
        (self.state / "config").mkdir(parents=True)
        (self.state / "config/config.toml").write_text(config)
        self.environment: dict[str, str] = {}
        """Further variables."""
        self._running: list[Running] = []

    async def start(self, *words: str, environment: Mapping[str, str] | None = None) -> Running:
        """Start a command; it gets ``--json`` and the host."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DDTREE_", "SSH_", "XDG_"))}
        own = {"HOME": str(self.home), "DDTREE_HOME": str(self.state), "LANG": "C.UTF-8", "NO_COLOR": "1"}
        process = await asyncio.create_subprocess_exec(
            str(PROGRAM),
            words[0],
            *self.words,
            "--json",
            *words[1:],
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            env={**kept, **own, **self.environment, **(environment or {})},
            start_new_session=True,
        )
        running = Running(process, self.state / "state/operations")
        self._running.append(running)
        return running

    async def run(self, *words: str) -> Ended:
        return await (await self.start(*words)).end()

    async def start_apply(self, *words: str, **settings: str) -> Running:
        """Start the change, :data:`~.records.WANTED` when no settings are given."""
        pairs = [f"--set={name}={value}" for name, value in (settings or WANTED).items()]
        return await self.start("apply", *pairs, "--restart", "--yes", *words)

    async def apply_until(self, stage: str, *words: str, status: str = "done") -> Running:
        """Start the change and wait until its journal has ``stage``, in this status or beyond it. Raises: Missed."""
        running = await self.start_apply(*words)
        await running.reaches(stage, status)
        return running

    async def apply(self, *words: str, **settings: str) -> Ended:
        return await (await self.start_apply(*words, **settings)).end()

    def end_all(self) -> None:
        for running in self._running:
            running.kill()


class Running:
    """A command under way."""

    def __init__(self, process: Process, operations: Path) -> None:
        self._process = process
        self._operations = operations
        self._known = set(self._journals())
        self._begun = time.monotonic()
        self._output = asyncio.create_task(process.communicate())

    @property
    def over(self) -> bool:
        return self._process.returncode is not None

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        if not self.over:
            self._process.send_signal(number)

    async def end(self, patience: float = PATIENCE_S) -> Ended:
        """Wait for its end. Raises: Missed: it hangs."""
        done, _ = await asyncio.wait({self._output}, timeout=patience)
        if not done:
            self.kill()
            await self._output
            raise Missed(f"the console had not ended after {patience:g} s; its stages: {self.stages()}")
        out, err = self._output.result()
        assert self._process.returncode is not None
        seconds = time.monotonic() - self._begun
        return Ended(self._process.returncode, out.decode(errors="replace"), err.decode(errors="replace"), seconds)

    def stages(self) -> list[tuple[str, str]]:
        """``(name, status)`` of every stage that its journal has by now."""
        found = []
        for path in sorted(set(self._journals()) - self._known):
            for line in path.read_bytes().splitlines():
                try:
                    record = json.loads(line)
                except ValueError:
                    continue
                if record.get("kind") == "stage":
                    found.append((str(record["name"]), str(record["status"])))
        return found

    async def reaches(self, name: str, status: str = "done", patience: float = 90.0) -> None:
        """Wait until its journal has the stage, in this status or beyond it. Raises: Missed."""
        until = time.monotonic() + patience
        while True:
            found = self.stages()
            if any(stage == name and (known == status or status == "running") for stage, known in found):
                return
            if self._output.done():
                raise Missed(f"the console ended before '{name}' was {status}: {found}; {(await self.end()).err}")
            if time.monotonic() > until:
                raise Missed(f"'{name}' was not {status} after {patience:g} s: {found}")
            await asyncio.sleep(LOOK_S)

    def _journals(self) -> list[Path]:
        return list(self._operations.glob("*.jsonl"))
