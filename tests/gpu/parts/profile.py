"""Where the time of a round goes at batch 1, without the timers' waits: the tree beside stock DFLASH, in a trace of each."""

from __future__ import annotations

import threading
import time
from dataclasses import asdict
from pathlib import Path

from tests.gpu.client import Client, Prompt
from tests.gpu.context import Context, Findings, Part
from tests.gpu.prompts import held_out
from tests.gpu.records import Check, Json, shown
from tests.gpu.traces import read_trace, summarise

STEPS = 20
"""Rounds that are traced, in the middle of an answer."""
SECONDS = 60.0
"""A trace is written when the last step is over, and takes a while."""


def run(context: Context) -> Findings:
    prompt = held_out(context.store, "code")[0]
    checks: list[Check] = []
    data: dict[str, Json] = {}
    for name in ("chain16", "tree16"):
        client = context.client(name)
        if name == "tree16":
            client.set_state(speculation=1, speculative_ddtree_budget=16, speculative_ddtree_topk=4)
        rounds = summarise(read_trace(_trace(client, prompt, context.out / "traces" / name)), STEPS)
        said = f"{rounds.span_ms:.2f} ms, the GPU busy for {rounds.busy_ms:.2f}; "
        said += f"{rounds.launches:.0f} launches, {rounds.graphs:.0f} graphs"
        checks.append(shown(f"a round at batch 1, traced: {name}", said))
        data[name] = asdict(rounds)
    return Findings(checks, data)


def _trace(client: Client, prompt: Prompt, folder: Path) -> Path:
    """The trace of some rounds of an answer.

    Raises:
        FileNotFoundError: none was written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    client.generate(prompt, 64)
    before = set(folder.iterdir())
    answer = threading.Thread(target=client.generate, args=(prompt, 60 * STEPS))
    answer.start()
    # Its prefill is over by then, so that all steps that are traced are rounds.
    time.sleep(0.2)
    client.command("/start_profile", {"output_dir": str(folder), "num_steps": STEPS, "activities": ["CPU", "GPU"]})
    answer.join()
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        written = sorted(path for path in set(folder.iterdir()) - before if "trace.json" in path.name)
        if written and 0 < written[0].stat().st_size == _later(written[0]):
            return written[0]
        time.sleep(0.2)
    raise FileNotFoundError(f"no trace under {folder} within {SECONDS:.0f} s")


def _later(path: Path) -> int:
    """Its size after a while: one that is still being written has grown."""
    time.sleep(1.0)
    return path.stat().st_size


PROFILE = Part("profile", "a trace of rounds, tree and chain", ("tree16", "chain16"), run, timed=True)
