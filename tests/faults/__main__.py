"""Run the faults: ``python -m tests.faults [--only NAME… | --again] [--list] [--jobs N]``.

All of them write ``docs/faults.md``; ``--again`` runs those that have no row there or a bad one, and replaces these rows;
``--only`` only prints. The exit status is 0 when every verdict was the expected one.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence

from tests.testhost import missing_requirements

from . import cases
from .judging import run_fault
from .records import REGISTRY, Fault, Outcome
from .table import FILE, read, render, row_of, totals


async def run_all(faults: Sequence[Fault], jobs: int) -> list[Outcome]:
    """Run them, ``jobs`` at a time, printing each as it ends."""
    limit = asyncio.Semaphore(jobs)

    async def run(fault: Fault) -> Outcome:
        async with limit:
            outcome = await run_fault(fault)
        given = outcome.given.value if outcome.given is not None else "no verdict"
        old = outcome.old.value if outcome.old is not None else "?"
        print(f"{'✓' if outcome.passed else '✗'} {fault.name}: {given}, old {old}, {outcome.seconds:.1f} s", flush=True)
        for problem in outcome.problems:
            print(f"    {problem}", flush=True)
        if outcome.problems and outcome.reason:
            print(f"    it said: {outcome.reason}", flush=True)
        return outcome

    return list(await asyncio.gather(*map(run, faults)))


def main(arguments: Sequence[str]) -> int:
    assert cases.__all__
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults", description="Break things on real hosts and judge the verdicts."
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[], help="these faults; a part of a name is enough")
    parser.add_argument("--again", action="store_true", help=f"those without a good row in {FILE.name}; the other rows stay")
    parser.add_argument("--list", action="store_true", help="show the faults and end")
    parser.add_argument("--jobs", type=int, default=2, help="hosts at a time (default: 2)")
    options = parser.parse_args(arguments)
    faults = [fault for fault in REGISTRY.faults.values() if not options.only or any(part in fault.name for part in options.only)]
    rows = read(FILE.read_text()) if options.again and FILE.exists() else {}
    faults = [fault for fault in faults if fault.name not in rows or not rows[fault.name].passed]
    if options.list:
        for fault in faults:
            print(f"{fault.name}: {fault.story} → {' or '.join(given.value for given in fault.expected)}")
        return 0
    if reason := missing_requirements():
        print(f"error: {reason}", file=sys.stderr)
        return 2
    # A shell's background job ignores Ctrl-C, and nohup's the end of the terminal. Consoles started from here would inherit that;
    # a handler of one's own is not inherited.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, lambda number, frame: None)
    outcomes = asyncio.run(run_all(faults, options.jobs))
    new = {outcome.fault.name: row_of(outcome) for outcome in outcomes}
    print(totals(new.values()))
    if not options.only:
        FILE.write_text(render({**rows, **new}, REGISTRY.faults.values()))
    return 0 if all(outcome.passed for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
