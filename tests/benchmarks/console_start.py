"""How fast the console opens and how little it takes: first paint beside a bare Textual app, first real state, idle, memory.

Run it on a quiet machine: ``python -m tests.benchmarks.console_start``. Bare and real starts alternate, so that what else the
machine does falls on both; medians are compared. Everything is measured with the engine stopped, with a configuration file, and
with the embedded engine running: then its metrics are polled, its log is followed and the dashboard plots, at first with nothing
to do and then while it answers prompts.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

BARE = """
from textual.app import App
from textual.widgets import Static

class Bare(App):
    def compose(self):
        yield Static("first paint")

Bare().run()
"""
# A read-only console does not start the engine: what is measured is the console.
CONSOLE = """
import sys
sys.argv.append("--read-only")
from dflash_console.__main__ import main
main()
"""

BARE_MARK = b"first paint"
CONSOLE_MARK = b"Dashboard"
STOPPED_MARK = "○ stopped".encode()
RUNNING_MARK = b" running"
"""The service's state: the first thing that is known."""
READY_MARK = "● running".encode()
"""The engine has answered."""
SETTLE_S = 4.0
"""After the first state: plots, history and the plotting library come then."""
CONFIG_FILE = """\
theme = "dark"

[sampling]
interval_s = 1.0
keep_days = 7

[hosts.gpu-a]
address = "root@gpu-a"
unit = "sglang.service"

[profiles.long]
tree_budget = 16
draft_window = 2048
"""
COLUMNS, ROWS = 120, 40


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


def idle(home: Path, mark: bytes, seconds: float, *, settle: float = SETTLE_S) -> dict[str, float]:
    """What an open console takes while nobody touches it, from ``settle`` seconds after ``mark`` was painted."""
    one = start(CONSOLE, home)
    try:
        one.wait_for(mark)
        one.drain(settle)
        before = one.cpu_s()
        painted = one.drain(seconds)
        used = one.cpu_s() - before
        return {"cpu_percent": used / seconds * 100, "bytes_per_s": painted / seconds, "resident_mb": one.resident_mb()}
    finally:
        one.end()


def command(home: Path, *words: str) -> subprocess.Popen[bytes]:
    """A headless command of the console, in the background."""
    return subprocess.Popen(
        [sys.executable, "-m", "dflash_console", *words],
        env={**os.environ, "DDTREE_HOME": str(home)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def with_engine(home: Path, runs: int, seconds: float) -> dict[str, float]:
    """The figures beside the embedded engine, started for it and stopped afterwards."""
    if command(home, "start", "--yes").wait(timeout=300):
        raise SystemExit("the embedded engine did not start; see: ddtree-console start")
    try:
        starts = [first(CONSOLE, home, CONSOLE_MARK, RUNNING_MARK, READY_MARK) for _ in range(runs)]
        quiet = idle(home, READY_MARK, seconds)
        prompts = command(home, "prompt", "--ignore-eos", "--max-tokens", "4000", "Write a long story.")
        try:
            busy = idle(home, READY_MARK, seconds)
            answering = prompts.poll() is None
        finally:
            prompts.terminate()
            prompts.wait(timeout=60)
        if not answering:
            raise SystemExit("the engine had answered before the measurement ended: its figures are of an idle engine")
    finally:
        command(home, "stop", "--yes").wait(timeout=120)
    paint, state, ready = (statistics.median(times) for times in zip(*starts, strict=True))
    return {
        "first_paint_s": paint,
        "first_state_s": state,
        "ready_s": ready,
        **{f"idle_{name}": value for name, value in quiet.items()},
        **{f"answering_{name}": value for name, value in busy.items()},
    }


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


def measure(runs: int, seconds: float, *, engine: bool) -> list[Row]:
    with tempfile.TemporaryDirectory() as plain, tempfile.TemporaryDirectory() as configured:
        home, other = Path(plain), Path(configured)
        (other / "config").mkdir()
        (other / "config" / "config.toml").write_text(CONFIG_FILE, "utf-8")
        bare, stopped, checked = [], [], []
        for _ in range(runs):
            bare.append(first(BARE, home, BARE_MARK)[0])
            stopped.append(first(CONSOLE, home, CONSOLE_MARK, STOPPED_MARK))
            checked.append(first(CONSOLE, other, CONSOLE_MARK, STOPPED_MARK))
        quiet = idle(home, STOPPED_MARK, seconds)
        beside = with_engine(home, runs, seconds) if engine else {}
    one = statistics.median(bare)
    paint, state = (statistics.median(times) for times in zip(*stopped, strict=True))
    paint_checked, state_checked = (statistics.median(times) for times in zip(*checked, strict=True))
    rows = [
        Row("bare Textual app: first paint", one, "s"),
        Row("first paint", paint, "s"),
        Row("first paint ÷ bare", paint / one, "", 2.2),
        Row("first paint ÷ bare, with a configuration file", paint_checked / one, "", 2.2),
        Row("first real state, engine stopped", state, "s", 1.0),
        Row("first real state, with a configuration file", state_checked, "s", 1.0),
        Row("idle CPU, engine stopped", quiet["cpu_percent"], "%", 5.0),
        Row("idle painting, engine stopped", quiet["bytes_per_s"], "B/s"),
        Row("resident memory, engine stopped", quiet["resident_mb"], "MB", 80.0),
    ]
    if beside:
        rows += [
            Row("first paint ÷ bare, engine running", beside["first_paint_s"] / one, "", 2.2),
            Row("first real state, engine running", beside["first_state_s"], "s", 1.0),
            Row("engine's first answer, engine running", beside["ready_s"], "s"),
            Row("idle CPU, engine running", beside["idle_cpu_percent"], "%", 5.0),
            Row("idle painting, engine running", beside["idle_bytes_per_s"], "B/s"),
            Row("resident memory, engine running", beside["idle_resident_mb"], "MB", 80.0),
            Row("CPU while the engine answers", beside["answering_cpu_percent"], "%"),
            Row("painting while the engine answers", beside["answering_bytes_per_s"], "B/s"),
            Row("resident memory while the engine answers", beside["answering_resident_mb"], "MB", 80.0),
        ]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7, help="starts of each kind")
    parser.add_argument("--idle", type=float, default=15.0, help="seconds of idling that are measured")
    parser.add_argument("--no-engine", dest="engine", action="store_false", help="leave out what needs the embedded engine")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    rows = measure(options.runs, options.idle, engine=options.engine)
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=2, ensure_ascii=False))
    else:
        print(*rows, sep="\n")


if __name__ == "__main__":
    main()
