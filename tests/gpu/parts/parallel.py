"""Tensor parallelism over all GPUs of a host: the text of one GPU, the same tree on every rank, and what such a server reports.

What the console asks a host for is kept as it came, idle and under load, under ``captures/``: recordings for the console's tests.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tests.gpu.client import Answer, Client, Prompt, ServerError, commit_length
from tests.gpu.context import Context, Findings, Part
from tests.gpu.models import BLOCK, TARGETS
from tests.gpu.oracle import Table, tuned_table
from tests.gpu.parts.equality import EQUAL
from tests.gpu.parts.mixed import requests
from tests.gpu.parts.random_targets import BUDGET, SLOTS, TOPK, exact_counts, variety
from tests.gpu.prompts import random_prompts
from tests.gpu.records import Check, Json, judged, shown
from tests.gpu.servers import Server
from tests.gpu.setups import SPREAD, table_path

BUDGETS = (1, 7, 8, 16, 32)
COMMIT = 3.0
PAGES = ("server_info", "metrics", "v1/loads")
"""What the console reads of a server."""


def _alike(expected: Sequence[tuple[int, ...]], got: Sequence[Answer]) -> int:
    return sum(answer.ids == ids for answer, ids in zip(got, expected, strict=True))


def trees(context: Context, kind: str) -> tuple[list[Check], dict[str, Json]]:
    """Greedy fp32 text of ``kind`` over all GPUs: plain, and trees of every budget, against one GPU."""
    one, many = context.client(f"{kind}-one"), context.client(f"{kind}-many")
    target = SPREAD[f"{kind}-many"]
    tokens = context.share_of(96, 32)
    prompts = random_prompts(context.share_of(32, 8), int(TARGETS[target]["vocab_size"]), seed=6)
    for client in (one, many):
        client.set_state(speculation=0)
    long = one.generate_all(prompts, tokens + 2 * BLOCK, 8)
    plain = [answer.ids[:tokens] for answer in long]
    name = f"{target} over {context.gpus} GPUs"
    here = many.generate_all(prompts, tokens, 8)
    checks = [variety(long)]
    checks.append(_plain_over_ranks(name, plain, here))
    table = tuned_table(prompts, [answer.ids for answer in long], SLOTS, COMMIT, budget=BUDGET, topk=TOPK, tokens=tokens)
    for server in (f"{kind}-one", f"{kind}-many"):
        # Nothing runs now, so all ranks meet the new table at the same round.
        table.save(table_path(context.store, server))
    data: dict[str, Json] = {"gpus": context.gpus}
    for budget in BUDGETS:
        checks += _budget(name, one, many, table, prompts, [answer.ids for answer in here], _alike(plain, here), budget, tokens)
        stages = many.states()[0].get("ddtree_round_ms")
        if isinstance(stages, dict):
            data[f"budget_{budget}_ms"] = {stage: round(float(ms), 3) for stage, ms in stages.items()}
    split = (
        ", ".join(f"{stage} {float(ms):.2f} ms" for stage, ms in stages.items()) if isinstance(stages, dict) else "not reported"
    )
    checks.append(shown(f"{name}: time split of a round, batch 8, budget {BUDGETS[-1]} (with timers)", split))
    log = context.servers[f"{kind}-many"].log_text()
    ranks = log.count("DDTREE tree ranks equal")
    said = f"{ranks} ranks have compared theirs, and go on doing so at every round"
    target_text = "equal on all ranks; a server ends when they are not"
    checks.append(judged(f"{name}: trees compared by the ranks", target_text, said, ranks == context.gpus))
    return checks, data


def _budget(
    name: str,
    one: Client,
    many: Client,
    table: Table,
    prompts: Sequence[Prompt],
    plain: Sequence[tuple[int, ...]],
    steady: int,
    budget: int,
    tokens: int,
) -> list[Check]:
    """``steady``: answers whose plain text over the ranks is that of one GPU."""
    found: list[list[Answer]] = []
    for client in (one, many):
        client.set_state(speculation=1, speculative_ddtree_budget=budget, speculative_ddtree_topk=TOPK)
        found.append(client.generate_all(prompts, tokens, 8))
    count = len(prompts)
    itself, single = _alike(plain, found[1]), _alike([answer.ids for answer in found[0]], found[1])
    verifies = sum(a.verifies == b.verifies for a, b in zip(*found, strict=True))
    exact = exact_counts(table, found[1], budget, TOPK, tokens)
    said = (
        f"{itself} of {count} equal to plain decoding, {single} to trees on one GPU; verifies of {verifies} answers the same, "
        f"of {exact} as foretold; commit length {commit_length(found[1]):.2f}"
    )
    # Where plain decoding itself is another text over the ranks, the oracle of one GPU's text is none for it.
    right = itself == count and min(single, verifies) >= steady
    target = EQUAL if steady == count else f"all equal to plain decoding, {steady} to one GPU as plain decoding is"
    return [judged(f"{name}: budget {budget}, greedy fp32", target, said, right)]


def _plain_over_ranks(name: str, one: Sequence[tuple[int, ...]], many: Sequence[Answer]) -> Check:
    """Ranks add in another order than one GPU does, so that a near-tie may be decided otherwise before any tree is built."""
    same, count = _alike(one, many), len(many)
    said = f"{same} of {count} equal"
    return judged(f"{name}: plain decoding in fp32, equal to one GPU's", "9 of 10", said, 10 * same >= 9 * count)


def capture(server: Server, folder: Path, state: str) -> list[str]:
    """What the console would see of host and server now, one file each; returns what could not be had."""
    # Imported here: the other parts must run where the console's packages are not installed.
    from dflash_console.evidence.gpu import APPS_QUERY, QUERY

    folder.mkdir(parents=True, exist_ok=True)
    missing: list[str] = []
    for page in PAGES:
        try:
            text = server.client.text(f"/{page}")
        except ServerError as error:
            missing.append(f"{page}: {error}"[:120])
        else:
            (folder / f"{state}-{page.replace('/', '-')}").write_text(text, encoding="utf-8")
    for name, query in (("gpu", QUERY), ("compute-apps", APPS_QUERY)):
        command = ["nvidia-smi", f"--query-{name}={','.join(query)}", "--format=csv"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            missing.append(f"nvidia-smi {name}: {error}")
        else:
            (folder / f"{state}-nvidia-smi-{name}.csv").write_text(done.stdout + done.stderr, encoding="utf-8")
    return missing


def _captures(context: Context) -> Check:
    """Idle, then with eight requests running; and the log."""
    server = context.servers["dense-many"]
    folder = context.out / f"captures-{context.gpus}-gpus"
    server.client.set_state(speculation=1, speculative_ddtree_budget=BUDGET, speculative_ddtree_topk=TOPK)
    missing = capture(server, folder, "idle")
    prompts = random_prompts(8, int(TARGETS["dense-small"]["vocab_size"]), seed=6)
    load = threading.Thread(target=_caught, args=(server.client, prompts, context.share_of(1500, 100)))
    load.start()
    time.sleep(2.0)
    missing += capture(server, folder, "load")
    under_load = load.is_alive()
    load.join()
    if server.log is not None:
        shutil.copy(server.log, folder / "server.log")
    said = f"{len(list(folder.iterdir()))} files; requests ran meanwhile: {under_load}" + "".join(
        f"; no {item}" for item in missing
    )
    return shown(f"captures of the console's sources with {context.gpus} GPUs", said)


def _caught(client: Client, prompts: Sequence[Prompt], tokens: int) -> None:
    """Load whose answers nobody reads; if the server breaks, the checks after it say so."""
    try:
        client.generate_all(prompts, tokens, len(prompts))
    except ServerError as error:
        print(f"    load: {error}", flush=True)


def run(context: Context) -> Findings:
    checks, data = trees(context, "dense")
    checks.append(_captures(context))
    vocabulary = int(TARGETS["dense-small"]["vocab_size"])
    short = random_prompts(32, vocabulary, seed=12)
    long = random_prompts(8, vocabulary, seed=13, shortest=500, longest=1500)
    found = requests(context.servers["dense-many"], short, long, context.share_of(200, 20))
    return Findings([*checks, *found.checks], {**data, **found.data})


def moe(context: Context) -> Findings:
    return Findings(*trees(context, "moe"))


PARALLEL = Part("parallel", "tensor parallelism against one GPU", ("dense-one", "dense-many"), run, kind="all GPUs")
PARALLEL_MOE = Part("parallel-moe", "the same with MLA and experts", ("moe-one", "moe-many"), moe, kind="all GPUs")
