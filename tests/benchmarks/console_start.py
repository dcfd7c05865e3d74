"""How fast the console opens and how little it takes: first paint beside a bare Textual app, first real state, idle, memory.

Run it on a quiet machine: ``python -m tests.benchmarks.console_start``. Bare and real starts alternate, so that what else the
machine does falls on both; medians are compared.
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
# A read-only console does not start the engine: what is measured is the console.
CONSOLE = """
import sys
sys.argv.append("--read-only")
from dflash_console.__main__ import main
main()
"""

BARE_MARK = b"first paint"
CONSOLE_MARK = b"Dashboard"
STATE_MARK = b"stopped"
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7, help="starts of each kind")
    parser.add_argument("--idle", type=float, default=15.0, help="seconds of idling that are measured")
    options = parser.parse_args()
    bare: list[float] = []
    console: list[float] = []
    state: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for _ in range(options.runs):
            one = start(BARE, home)
            bare.append(one.wait_for(BARE_MARK))
            one.end()
            one = start(CONSOLE, home)
            console.append(one.wait_for(CONSOLE_MARK))
            state.append(one.wait_for(STATE_MARK))
            one.end()
        one = start(CONSOLE, home)
        one.wait_for(STATE_MARK)
        one.drain(4.0)
        before, painted = one.cpu_s(), 0
        painted = one.drain(options.idle)
        used = one.cpu_s() - before
        memory = one.resident_mb()
        one.end()
    figures = {
        "bare_first_paint_s": round(statistics.median(bare), 3),
        "console_first_paint_s": round(statistics.median(console), 3),
        "ratio": round(statistics.median(console) / statistics.median(bare), 2),
        "first_state_s": round(statistics.median(state), 3),
        "idle_cpu_percent": round(used / options.idle * 100, 2),
        "idle_bytes_per_s": round(painted / options.idle),
        "resident_mb": round(memory, 1),
        "runs": options.runs,
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
