"""Run parts of the GPU checks, and make a table of what they found.

    python -m tests.gpu list
    python -m tests.gpu weights [--store /tmp/ddtree-gpu]
    python -m tests.gpu run smoke,equality --out FOLDER [--store /tmp/ddtree-gpu] [--scale 0.2] [--seconds 540] [--devices 0,1]
    python -m tests.gpu merge FOLDER --into docs/results/sglang.md

``run`` starts all servers that the parts need together, runs the parts one after another, writes ``FOLDER/PART.json`` after each,
and ends the servers. Each part runs in a process of its own, which is ended when it takes too long. A part that breaks is a
result too. Exit code 1 when a check missed its target or a part broke.

Several runs may share a machine: give each its ports, and all the same ``--turns`` file. Then parts that measure speed wait until
no other run is starting servers or running a part.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import signal
import sys
import textwrap
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.gpu.client import Client
from tests.gpu.context import Context, Findings, Part
from tests.gpu.parts import PARTS
from tests.gpu.provenance import provenance
from tests.gpu.records import Check, PartResult, Verdict, read_results, table
from tests.gpu.servers import FIRST_PORT, Server, StartFailed, running
from tests.gpu.setups import DEFAULT_STORE, DRAFTERS, random_model, setup
from tests.gpu.turns import Turns

START_SECONDS = 330.0
"""For the servers of a run, all together."""
ENDING_SECONDS = 30.0
"""For a part that was told to end."""
INTRODUCTION = """\
# DDTREE inside SGLang, measured

Made by `python -m tests.gpu merge` from the result files beside it; `docs/sglang.md` says how they were made.

"""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="name the parts")
    run = commands.add_parser("run", help="run parts")
    run.add_argument("parts", help="names with commas")
    run.add_argument("--out", type=Path, required=True)
    run.add_argument("--logs", type=Path, help="folder for the servers' logs (default: --out)")
    run.add_argument("--store", type=Path, default=DEFAULT_STORE)
    run.add_argument("--scale", type=float, default=1.0, help="share of the full work")
    run.add_argument("--seconds", type=float, default=540.0, help="what has not ended by then is broken off")
    run.add_argument("--part-seconds", type=float, default=300.0, help="what one part may take")
    run.add_argument("--devices", default="0", help="GPUs, with commas (default: 0)")
    run.add_argument("--first-port", type=int, default=FIRST_PORT)
    run.add_argument("--turns", type=Path, help="file by which runs on the same machine take turns")
    run.add_argument(
        "--attach", action="append", default=[], metavar="NAME=URL", help="use a running server instead of starting it"
    )
    weights = commands.add_parser("weights", help="write the random targets now, not when a server first needs one")
    weights.add_argument("--store", type=Path, default=DEFAULT_STORE)
    merge = commands.add_parser("merge", help="make the table")
    merge.add_argument("folder", type=Path)
    merge.add_argument("--into", type=Path)
    arguments = parser.parse_args(argv)
    if arguments.command == "list":
        _list(shutil.get_terminal_size().columns)
        return 0
    if arguments.command == "weights":
        for name in DRAFTERS:
            random_model(arguments.store, name)
        return 0
    if arguments.command == "merge":
        return _merge(arguments.folder, arguments.into)
    names = arguments.parts.split(",")
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        parser.error(f"no part is called {', '.join(unknown)}; there are {', '.join(PARTS)}")
    return run_parts(
        [PARTS[name] for name in names],
        arguments.out,
        arguments.store,
        scale=arguments.scale,
        seconds=arguments.seconds,
        part_seconds=arguments.part_seconds,
        attached=dict(item.split("=", 1) for item in arguments.attach),
        logs=arguments.logs,
        devices=tuple(map(int, arguments.devices.split(","))),
        first_port=arguments.first_port,
        turns=arguments.turns,
    )


def _list(columns: int) -> None:
    """Each part with what it checks and what it needs; long ones go on under themselves."""
    width = max(map(len, PARTS)) + 2
    for part in PARTS.values():
        needs = [", ".join(part.servers), part.kind, "alone" if part.timed else ""]
        said = f"{part.about} ({'; '.join(filter(None, needs))})"
        lines = textwrap.wrap(said, max(columns - width, 20), break_on_hyphens=False)
        print(f"{part.name:{width}}" + f"\n{'':{width}}".join(lines))


def run_parts(
    parts: Iterable[Part],
    out: Path,
    store: Path,
    *,
    scale: float = 1.0,
    seconds: float = 540.0,
    part_seconds: float = 300.0,
    attached: Mapping[str, str] | None = None,
    logs: Path | None = None,
    devices: Sequence[int] = (0,),
    first_port: int = FIRST_PORT,
    turns: Path | None = None,
) -> int:
    """Run ``parts`` with the servers that they need; returns the exit code.

    Args:
        out: gets one result file a part.
        seconds: from the run's first turn on; a part that runs then is broken off, and those after it are not begun.
        part_seconds: what one part may take before it is broken off and the next begins.
        attached: servers that run already, by name.
        logs: gets the servers' logs; ``out`` unless given.
        devices: GPUs that may be used.
        turns: the file by which several runs take turns; see :class:`~tests.gpu.turns.Turns`.
    """
    parts, attached = list(parts), dict(attached or {})
    out.mkdir(parents=True, exist_ok=True)
    asked = (name for part in parts for name in (*part.servers, *part.optional))
    wanted = list(dict.fromkeys(name for name in asked if name not in attached))
    known = {name: Server(name, Client(url), None) for name, url in attached.items()}
    failed = False
    before = signal.signal(signal.SIGTERM, _out_of_time)
    try:
        with Turns(turns) as turn:
            # From here on: a run that begins while another is alone does not lose that time.
            end = time.monotonic() + seconds
            specs = [setup(name, store, len(devices)) for name in wanted]
            limit = min(seconds, START_SECONDS)
            start = running(specs, logs or out, seconds=limit, first_port=first_port, devices=devices, tolerant=True)
            with start as started:
                for part in parts:
                    absent = [name for name in part.servers if name not in known and name not in started]
                    if absent:
                        result = _not_run(part, f"not begun: {', '.join(absent)} did not start")
                    elif not turn.take(alone=part.timed, until=end):
                        result = _not_run(part, "not begun: no time left")
                    else:
                        context = Context(store, {**known, **started}, scale, out, tuple(devices))
                        result = _within(part, context, min(part_seconds, end - time.monotonic()))
                    failed |= _tell(result, out)
    except (StartFailed, OutOfTime) as error:
        print(f"start failed: {error}", flush=True)
        return 1
    finally:
        signal.signal(signal.SIGTERM, before)
    return int(failed)


def _within(part: Part, context: Context, seconds: float) -> PartResult:
    """Run a part in a process of its own for at most ``seconds``; what hangs in it cannot hold up the next one."""
    receiver, sender = multiprocessing.Pipe(duplex=False)

    def work() -> None:
        sender.send(run_part(part, context).to_json())

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    sender.close()
    try:
        if receiver.poll(seconds):
            return PartResult.from_json(receiver.recv())
        # Told to end, it still clears up after itself and says what it was doing.
        process.terminate()
        if receiver.poll(ENDING_SECONDS):
            return PartResult.from_json(receiver.recv())
        return _not_run(part, f"out of time after {seconds:.0f} s")
    except OutOfTime:
        # The run is to end: first let the part clear up.
        process.terminate()
        process.join(ENDING_SECONDS)
        raise
    except EOFError:
        return _not_run(part, f"its process ended with code {process.exitcode}")
    finally:
        process.join(1)
        process.kill()
        process.join()


class OutOfTime(Exception):
    """The time that a part or the run was given has passed."""


def _out_of_time(_signal: int, _frame: object) -> None:
    raise OutOfTime("out of time")


def run_part(part: Part, context: Context) -> PartResult:
    """One part's result, also when it breaks."""
    print(f"== {part.name}: {part.about}", flush=True)
    begun = time.monotonic()
    try:
        found = part.run(context)
    except Exception as error:
        traceback.print_exc()
        found = Findings([Check(part.name, "", f"{type(error).__name__}: {error}"[:500], Verdict.BROKEN)], {})
    return PartResult(
        part.name, time.monotonic() - begun, provenance(context.gpus), tuple(found.checks), found.data, context.scale
    )


def _not_run(part: Part, why: str) -> PartResult:
    return PartResult(part.name, 0.0, provenance(), (Check(part.name, "", why, Verdict.BROKEN),))


def _tell(result: PartResult, out: Path) -> bool:
    """Write and print a result; True when something is not as it must be."""
    (out / f"{result.part}.json").write_text(result.to_json(), encoding="utf-8")
    for check in result.checks:
        print(f"  {check.verdict.value:6} {check.name}: {check.measured}", flush=True)
    print(f"  ({result.seconds:.0f} s)", flush=True)
    return any(check.verdict in (Verdict.MISSED, Verdict.BROKEN) for check in result.checks)


def _merge(folder: Path, into: Path | None) -> int:
    try:
        results = read_results(sorted(folder.glob("*.json")))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    missing = [part for part in PARTS.values() if part.name not in {result.part for result in results}]
    text = INTRODUCTION + table(results)
    if missing:
        text += "\nParts without a result yet: " + "; ".join(f"{part.name} ({part.about})" for part in missing) + ".\n"
    if into is None:
        print(text)
    else:
        into.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
