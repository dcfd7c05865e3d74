"""Programs that are started in a terminal of their own and watched until they have painted something."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

BARE = """
from textual.app import App
from textual.widgets import Static

class Bare(App):
    def compose(self):
        yield Static("first paint")

Bare().run()
"""
BARE_MARK = b"first paint"
CONSOLE_MARK = b"Dashboard"
SETTLE_S = 4.0
"""After the first state: plots, history and the plotting library come then."""
COLUMNS, ROWS = 120, 40


def console(*words: str) -> str:
    """Python code that opens a console which changes nothing: it does not start an engine either."""
    return f"import sys\nsys.argv += {['--read-only', *words]!r}\nfrom dflash_console.__main__ import main\nmain()\n"


@dataclass
class Started:
    """One start in a terminal of its own."""

    process: subprocess.Popen[bytes]
    terminal: int
    begun: float
    shown: bytes = b""

    def wait_for(self, mark: bytes, seconds: float = 30.0) -> float:
        """Seconds from the start until ``mark`` was written to the terminal."""
        while mark not in self.shown:
            left = self.begun + seconds - time.perf_counter()
            if left <= 0:
                raise SystemExit(f"{mark!r} was not painted within {seconds:.0f} s")
            if select.select([self.terminal], [], [], left)[0]:
                self.shown += os.read(self.terminal, 65_536)
        return time.perf_counter() - self.begun

    def drain(self, seconds: float) -> int:
        """Read what is painted for a while; how many bytes it was."""
        end = time.perf_counter() + seconds
        count = 0
        while (left := end - time.perf_counter()) > 0:
            if select.select([self.terminal], [], [], left)[0]:
                count += len(os.read(self.terminal, 65_536))
        return count

    def cpu_s(self) -> float:
        """CPU seconds of the process so far, user and system."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mb(self) -> float:
        """Resident memory in MB (1e6 bytes)."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) * 1024 / 1e6
        return 0.0

    def end(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        os.close(self.terminal)


def start(code: str, home: Path) -> Started:
    """Run Python code in a pseudo-terminal of 120 x 40 cells."""
    ours, theirs = pty.openpty()
    subprocess.run(["stty", "cols", str(COLUMNS), "rows", str(ROWS)], stdin=theirs, check=True)
    environment = {**os.environ, "DDTREE_HOME": str(home), "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    begun = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    )
    os.close(theirs)
    return Started(process, ours, begun)


def first(code: str, home: Path, *marks: bytes) -> list[float]:
    """Seconds until each of ``marks`` was painted, of one start."""
    one = start(code, home)
    try:
        return [one.wait_for(mark) for mark in marks]
    finally:
        one.end()


def idle(code: str, home: Path, mark: bytes, seconds: float, *, settle: float = SETTLE_S) -> dict[str, float]:
    """What an open console takes while nobody touches it, from ``settle`` seconds after ``mark`` was painted."""
    one = start(code, home)
    try:
        one.wait_for(mark)
        one.drain(settle)
        before = one.cpu_s()
        painted = one.drain(seconds)
        used = one.cpu_s() - before
        return {"cpu_percent": used / seconds * 100, "bytes_per_s": painted / seconds, "resident_mb": one.resident_mb()}
    finally:
        one.end()


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    value: float
    unit: str
    target: float | None = None
    """The most that is wanted; ``None`` = only shown."""

    def __str__(self) -> str:
        verdict = "" if self.target is None else f"≤ {self.target:g}  {'✓' if self.value <= self.target else '✗ missed'}"
        return f"{self.what:<58} {self.value:>8.{0 if self.unit == 'B/s' else 2}f} {self.unit:<6} {verdict}".rstrip()
