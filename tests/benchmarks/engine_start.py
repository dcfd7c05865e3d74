"""Seconds from ``ddtree-launch serve`` to a server that answers, with a warm cache.

    python -m tests.benchmarks.engine_start [--runs 5] [flags of serve]

Prints each run, and the median with its parts: until the port is reserved and torch is loaded, until the engine stands,
until the first answer of one token.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import httpx

TIMEOUT = 120.0
"""Seconds after which a start counts as failed."""


@dataclass(frozen=True)
class Start:
    """Seconds since the process was started."""

    arguments_read: float
    loading: float
    ready: float
    answered: float


def measure(flags: list[str]) -> Start:
    """One start and its end.

    Raises:
        RuntimeError: the server ended or did not become ready in time.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        begun = time.monotonic()
        with log.open("w") as out:
            command = [sys.executable, "-m", "engine_launch", "serve", "--engine", "embedded", "--port", "0", *flags]
            process = subprocess.Popen(command, stdout=out, stderr=out)
        try:
            arguments_read = _seen(process, log, "server_args=", begun)
            loading = _seen(process, log, "Load weight begin", begun)
            ready = _seen(process, log, "Uvicorn running", begun)
            url = next(line for line in log.read_text().splitlines() if "Uvicorn running" in line).split(" on ")[1].split()[0]
            body = {"text": "Hello", "sampling_params": {"max_new_tokens": 1, "temperature": 0}}
            httpx.post(f"{url}/generate", json=body, timeout=TIMEOUT).raise_for_status()
            return Start(arguments_read, loading, ready, answered=time.monotonic() - begun)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def _seen(process: subprocess.Popen[bytes], log: Path, word: str, begun: float) -> float:
    while time.monotonic() - begun < TIMEOUT:
        if word in log.read_text():
            return time.monotonic() - begun
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with code {process.returncode}:\n{log.read_text()}")
        time.sleep(0.01)
    raise RuntimeError(f"no {word!r} in {TIMEOUT:.0f} s:\n{log.read_text()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=5)
    arguments, flags = parser.parse_known_args()
    measure(flags)  # makes the cache warm; not counted
    starts = [measure(flags) for _ in range(arguments.runs)]
    print("run   arguments   loading   ready   first answer   (seconds since the start)")
    for index, one in enumerate(starts, 1):
        print(f"{index:>3} {one.arguments_read:>11.2f} {one.loading:>9.2f} {one.ready:>7.2f} {one.answered:>14.2f}")
    ready, answered = ([getattr(one, name) for one in starts] for name in ("ready", "answered"))
    print(f"median: ready {statistics.median(ready):.2f} s, first answer {statistics.median(answered):.2f} s")


if __name__ == "__main__":
    main()
