"""Whether a unit's journal is followed over SSH without a lost or doubled line, and how late its lines come.

It needs root and the packages of a test host: ``python -m tests.benchmarks.journal_follow``. A host with a real journald is
booted here. First a unit prints single lines, and the time from the journal's stamp on a line to that line as a record in this
process is measured; host and console share one clock here. Then another prints lines at the asked rate while the connection is
broken again and again: the server's end is killed, and once the link goes dead without a word. Last, the host is made far away,
and the single lines are measured again.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from dflash_console.hosts.journald import Journal
from dflash_console.hosts.ssh import SshTransport
from tests.testhost import TestHost
from tests.testhost.far import far_port

FLOOD = """
import sys, time
rate, seconds = float(sys.argv[1]), float(sys.argv[2])
pad = "#running-req: 1, #token: 66, token usage: 0.00, accept len: 3.10, accept rate: 0.39, cuda graph: True, gen throughput " * 2
begun, number, last = time.monotonic(), 0, int(rate * seconds)
while number < last:
    due = min(last, int((time.monotonic() - begun) * rate) + 1)
    sys.stdout.write("".join(f"line {n} {pad}\\n" for n in range(number, due)))
    sys.stdout.flush()
    number = due
    time.sleep(0.01)
print("end", number)
"""
SINGLE = """
import random, time
for number in range(200):
    print("single", number, flush=True)
    time.sleep(random.uniform(0.05, 0.35))
print("end", 200)
"""
DEAD_LINK_S = 30.0
"""Longer than the 24 s after which a connection that says nothing is given up."""
PATIENCE_S = 120.0
EARLY = 5
"""Lines."""


@dataclass(frozen=True)
class Flood:
    """What came of a run with many lines."""

    printed: int
    stored: int
    given: int
    lost: int
    doubled: int
    disordered: int
    gaps: int
    streams: int
    behind_s: float
    """From the last line in the journal to the last line here."""
    cpu_us: float
    """This process's CPU time for one line, the SSH decryption included."""


def prepare(host: TestHost) -> None:
    folder = host.path("/etc/systemd/journald.conf.d")
    folder.mkdir(parents=True)
    (folder / "benchmark.conf").write_text("[Journal]\nRateLimitIntervalSec=0\n")
    host.exec("systemctl", "restart", "systemd-journald")
    for name, program in (("flood", FLOOD), ("single", SINGLE)):
        host.path(f"/root/{name}.py").write_text(program)


def install(host: TestHost, name: str, *arguments: str) -> str:
    words = " ".join(arguments)
    host.install_unit(f"{name}.service", f"[Service]\nExecStart=/usr/bin/python3 -u /root/{name}.py {words}\n")
    return f"{name}.service"


@contextlib.asynccontextmanager
async def connected(host: TestHost, folder: Path, port: int = 0) -> AsyncIterator[SshTransport]:
    """A connection made as a user's is, from a home folder of its own; ``port`` is another way to the host's own port."""
    ssh = folder / ".ssh"
    ssh.mkdir(mode=0o700, exist_ok=True)
    (ssh / "known_hosts").write_text(host.known_hosts_line().replace(str(host.port), str(port or host.port)))
    (ssh / "config").write_text(
        f"Host gpu\n  HostName 127.0.0.1\n  User root\n  Port {port or host.port}\n"
        f"  IdentityFile {host.key}\n  IdentitiesOnly yes\n"
    )
    os.environ["HOME"] = str(folder)
    os.environ.pop("SSH_AUTH_SOCK", None)
    transport = SshTransport("gpu")
    try:
        yield transport
    finally:
        await transport.close()


def kill_connection(host: TestHost) -> None:
    """End the server's processes that serve logged-in users: the connection breaks with a word."""
    for pid, words in host.processes().items():
        if words[0].startswith("sshd: root"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


async def flood(host: TestHost, transport: SshTransport, rate: float, seconds: float, cuts: int) -> Flood:
    unit = install(host, "flood", f"{rate:g}", f"{seconds:g}")
    journal = Journal(transport, unit)
    cursor = await journal.cursor()
    numbers: list[int] = []
    gaps = 0
    ended_at = 0.0
    printed = 0

    async def follow() -> None:
        nonlocal gaps, ended_at, printed
        async for line in journal.follow(cursor=cursor):
            if line.origin == "gap":
                gaps += 1
            if line.origin != "engine":
                continue
            word, number, *_ = line.text.split(" ", 2)
            if word == "end":
                printed, ended_at = int(number), time.time() - (line.at or 0.0)
                return
            numbers.append(int(number))

    cpu = time.process_time()
    following = asyncio.create_task(follow())
    host.exec("systemctl", "start", unit)
    begun = time.monotonic()
    dead = cuts // 2
    for cut in range(cuts):
        # The dead link takes a share of the time of its own; the others are spread over what is left.
        share = (seconds - DEAD_LINK_S) / (cuts + 1) if cuts > 1 else 1.0
        await asyncio.sleep(max(0.5, share))
        if cut == dead:
            await asyncio.to_thread(host.cut)
            await asyncio.sleep(DEAD_LINK_S)
            await asyncio.to_thread(host.heal)
        else:
            await asyncio.to_thread(kill_connection, host)
        print(f"  cut {cut + 1} at {time.monotonic() - begun:5.1f} s, {len(numbers)} lines so far", flush=True)
    async with asyncio.timeout(seconds + PATIENCE_S):
        await following
    cpu = time.process_time() - cpu
    command = ["sh", "-c", f"journalctl -o cat _SYSTEMD_UNIT={unit} | grep -c '^line '"]
    stored = int((await asyncio.to_thread(host.exec, *command)).stdout)
    streams = sum(1 for record in transport.commands.records() if "--follow" in record.argv)
    return Flood(
        printed=printed,
        stored=stored,
        given=len(numbers),
        lost=len(set(range(printed)) - set(numbers)),
        doubled=len(numbers) - len(set(numbers)),
        disordered=sum(1 for one, next_one in itertools.pairwise(numbers) if next_one <= one),
        gaps=gaps,
        streams=streams,
        behind_s=ended_at,
        cpu_us=1e6 * cpu / max(1, len(numbers)),
    )


async def latencies(host: TestHost, transport: SshTransport, *, confirming: bool) -> list[float]:
    """Seconds from the journal's stamp on a line to its record here, sorted; as a confirmation follows, or as a screen does."""
    unit = install(host, "single")
    journal = Journal(transport, unit)
    cursor = await journal.cursor()
    host.exec("systemctl", "restart", unit)
    shown = host.exec("systemctl", "show", "--property=InvocationID", "--value", unit).stdout.decode().strip()
    found = []
    async with asyncio.timeout(300):
        async for line in journal.follow(cursor=cursor, invocation_id=shown if confirming else None):
            if line.text.startswith("single") and line.at is not None:
                found.append(time.time() - line.at)
            if line.text.startswith("end"):
                break
    # The first were printed before anybody followed.
    return sorted(found[EARLY:])


def quantile(values: list[float], share: float) -> float:
    """Of sorted values."""
    return values[int(share * (len(values) - 1))]


def tell(what: str, late: list[float]) -> None:
    print(f"{what}: {len(late)} lines, median {statistics.median(late):.3f} s, ", end="")
    print(f"p99 {quantile(late, 0.99):.3f} s, most {late[-1]:.3f} s", flush=True)


async def measure(rate: float, seconds: float, cuts: int, delay_s: float) -> bool:
    with tempfile.TemporaryDirectory() as folder, TestHost.boot("journal") as host:
        prepare(host)
        async with connected(host, Path(folder)) as transport:
            screen = await latencies(host, transport, confirming=False)
            tell("single lines, journal to record, as a screen follows", screen)
            tell("the same, as a confirmation follows", await latencies(host, transport, confirming=True))
            print(
                f"{rate:g} lines/s for {seconds:g} s with {cuts} cuts, one of them a dead link of {DEAD_LINK_S:g} s:", flush=True
            )
            result = await flood(host, transport, rate, seconds, cuts)
        async with far_port(host.port, delay_s) as port, connected(host, Path(folder), port) as transport:
            late = await latencies(host, transport, confirming=True)
    print(f"  printed {result.printed}, stored {result.stored}, given {result.given}: lost {result.lost}, ", end="")
    print(f"doubled {result.doubled}, out of order {result.disordered}, gaps said {result.gaps}; {result.streams} streams")
    print(f"  the last line came {result.behind_s:.2f} s after it was stored; {result.cpu_us:.0f} µs of CPU a line here")
    tell(f"as a confirmation follows, {1000 * delay_s:g} ms further away each way (wanted: p99 at most 0.3 s)", late)
    whole = result.stored == result.printed and not (result.lost or result.doubled or result.disordered)
    return whole and quantile(late, 0.99) <= 0.3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rate", type=float, default=5000.0, help="lines a second (default %(default)g)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (default %(default)g)")
    parser.add_argument("--cuts", type=int, default=10, help="how often the connection is broken (default %(default)s)")
    parser.add_argument("--delay-ms", type=float, default=20.0, help="added each way for the far host (default %(default)g)")
    options = parser.parse_args()
    return 0 if asyncio.run(measure(options.rate, options.seconds, options.cuts, options.delay_ms / 1000)) else 1


if __name__ == "__main__":
    sys.exit(main())
