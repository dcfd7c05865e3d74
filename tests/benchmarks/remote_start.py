"""What a host over SSH costs: first paint beside the embedded host, also when it cannot be reached; memory; a drift named.

It needs root and the packages of a test host: ``python -m tests.benchmarks.remote_start``. A real host with systemd and sshd is
booted, and the embedded engine runs there as a unit. Starts with and without a remote host alternate, and medians are compared.
The drift is the one that cost most: the unit file has a flag that the running process never got, since nobody restarted it. The
whole headless command is timed, its connection included.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.benchmarks.starts import CONSOLE_MARK, Row, console, first, idle, start
from tests.ports import free_port
from tests.testhost import TestHost

UNIT = "ddtree.service"
WINDOW = ("--speculative-draft-window-size", "2048")
HERE_MARK = "○ stopped".encode()
THERE_MARK = "● running".encode()
CONFIG_FILE = f'[hosts.gpu]\naddress = "gpu"\nunit = "{UNIT}"\n'
REACH_S = 30.0


@dataclass(frozen=True)
class Remote:
    """A host that is up, its engine running, and the console's home folder that knows it."""

    host: TestHost
    home: Path
    engine_port: int

    def command(self, *words: str) -> tuple[float, str]:
        """Seconds and standard output of a whole headless command against the host."""
        begun = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "dflash_console", *words, "--host", "gpu"],
            env={**os.environ, "DDTREE_HOME": str(self.home)},
            capture_output=True,
            text=True,
            check=False,
        )
        return time.perf_counter() - begun, done.stdout


@contextlib.contextmanager
def remote() -> Iterator[Remote]:
    with tempfile.TemporaryDirectory() as folder, TestHost.boot("remotestart") as host:
        home = Path(folder)
        ssh = home / ".ssh"
        ssh.mkdir(mode=0o700)
        (ssh / "known_hosts").write_text(host.known_hosts_line())
        (ssh / "config").write_text(
            f"Host gpu\n  HostName 127.0.0.1\n  User root\n  Port {host.port}\n  IdentityFile {host.key}\n  IdentitiesOnly yes\n"
        )
        os.environ["HOME"] = str(home)
        os.environ.pop("SSH_AUTH_SOCK", None)
        (home / "config").mkdir()
        (home / "config" / "config.toml").write_text(CONFIG_FILE, "utf-8")
        port = free_port()
        host.install_engine(port=port, unit=UNIT)
        host.exec("systemctl", "start", UNIT)
        one = Remote(host, home, port)
        deadline = time.monotonic() + 120
        while "ready" not in one.command("status", "--json")[1]:
            if time.monotonic() > deadline:
                raise SystemExit("the engine on the test host did not get ready within 120 s")
            time.sleep(1)
        yield one


def unreachable(one: Remote, runs: int) -> tuple[list[float], list[float]]:
    """First paints in alternation: the embedded host, and a host whose packets are dropped."""
    here, there = [], []
    one.host.cut()
    try:
        for _ in range(runs):
            here.append(first(console("--host", "embedded"), one.home, CONSOLE_MARK)[0])
            there.append(first(console("--host", "gpu"), one.home, CONSOLE_MARK)[0])
    finally:
        one.host.heal()
    return here, there


def named_unreachable(one: Remote) -> float:
    """Seconds until a console says that a host which drops everything cannot be reached."""
    one.host.cut()
    opened = start(console("--host", "gpu"), one.home)
    try:
        return opened.wait_for(b"did not answer within", REACH_S)
    finally:
        opened.end()
        one.host.heal()


def story(one: Remote, runs: int) -> list[float]:
    """Seconds of ``drift``, which must name the flag that was written and never started."""
    unit = one.host.path(f"/etc/systemd/system/{UNIT}")
    unit.write_text(unit.read_text().replace(" --host", f" {' '.join(WINDOW)} --host", 1))
    one.host.exec("systemctl", "daemon-reload")
    times = []
    for _ in range(runs):
        seconds, out = one.command("drift", "--json")
        if "no restart happened" not in out:
            raise SystemExit(f"drift did not name the restart that never happened:\n{out}")
        times.append(seconds)
    return times


def measure(runs: int, seconds: float) -> list[Row]:
    with remote() as one:
        here, reached = [], []
        for _ in range(runs):
            here.append(first(console("--host", "embedded"), one.home, CONSOLE_MARK, HERE_MARK))
            reached.append(first(console("--host", "gpu"), one.home, CONSOLE_MARK, THERE_MARK))
        beside, dropped = unreachable(one, runs)
        said = named_unreachable(one)
        quiet = idle(console("--host", "gpu"), one.home, THERE_MARK, seconds)
        drifts = story(one, runs)
    paint_here, _ = (statistics.median(times) for times in zip(*here, strict=True))
    paint, ready = (statistics.median(times) for times in zip(*reached, strict=True))
    return [
        Row("first paint, embedded host", paint_here, "s"),
        Row("first paint ÷ embedded, host over SSH", paint / paint_here, ""),
        Row("engine's first answer over SSH", ready, "s"),
        Row("first paint ÷ embedded, unreachable host", statistics.median(dropped) / statistics.median(beside), "", 1.1),
        Row("unreachable said, with its reason", said, "s"),
        Row("idle CPU, host over SSH", quiet["cpu_percent"], "%", 5.0),
        Row("resident memory, host over SSH", quiet["resident_mb"], "MB", 105.0),
        Row("drift names the restart that never happened (slowest)", max(drifts), "s", 3.0),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=5, help="starts and commands of each kind (default %(default)s)")
    parser.add_argument("--idle", type=float, default=30.0, help="seconds of idling that are measured (default %(default)g)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    rows = measure(options.runs, options.idle)
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=2, ensure_ascii=False))
    else:
        print(*rows, sep="\n")
    return 0 if all(row.target is None or row.value <= row.target for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
