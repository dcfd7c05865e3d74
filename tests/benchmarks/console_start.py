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
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.benchmarks.starts import BARE, BARE_MARK, CONSOLE_MARK, Row, console, first, idle

STOPPED_MARK = "○ stopped".encode()
RUNNING_MARK = b" running"
"""The service's state: the first thing that is known."""
READY_MARK = "● running".encode()
"""The engine has answered."""
CONSOLE = console()
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
        quiet = idle(CONSOLE, home, READY_MARK, seconds)
        prompts = command(home, "prompt", "--ignore-eos", "--max-tokens", "4000", "Write a long story.")
        try:
            busy = idle(CONSOLE, home, READY_MARK, seconds)
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
        quiet = idle(CONSOLE, home, STOPPED_MARK, seconds)
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
