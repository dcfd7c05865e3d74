"""The drafter's window at long context: commit length, speed, and the gigabytes of the draft KV pool."""

from __future__ import annotations

import re

from tests.gpu.context import Context, Findings, Part
from tests.gpu.parts.speed import rate
from tests.gpu.prompts import held_out, of_length
from tests.gpu.records import Check, Json, judged, shown
from tests.gpu.servers import Server

CONTEXT = 6144
POOL = re.compile(r"KV Cache is allocated\. .*#tokens: (\d+), (?:K size: ([\d.]+) GB, V size: ([\d.]+) GB|KV size: ([\d.]+) GB)")


def pools(log: str) -> list[tuple[int, float]]:
    """(tokens, GB) of every KV pool that a start allocated: the target's first, the drafter's second."""
    return [(int(m[1]), float(m[4]) if m[4] else float(m[2]) + float(m[3])) for m in POOL.finditer(log)]


def _measure(server: Server, context: Context, window: str) -> tuple[Check, dict[str, Json]]:
    prompts = of_length(held_out(context.store, "long"), CONTEXT)[: context.share_of(8, 2)]
    server.client.set_state(speculation=1, speculative_ddtree_budget=16, speculative_ddtree_topk=4)
    # The first pass fills the prefix cache, so that decoding is what is timed.
    server.client.generate_all(prompts, 2, 4)
    got = rate(server.client, prompts, 128, 1, 3 if context.scale >= 1 else 1)
    found = pools(server.log_text())
    pool = f"draft pool {found[1][1]:.2f} GB for {found[1][0]} tokens" if len(found) > 1 else "draft pool not in the log"
    name = f"window {window} at {CONTEXT} tokens of context, {len(prompts)} prompts"
    data: dict[str, Json] = {"tok_s": got.tok_s, "commit_length": got.commit, "pools": [list(item) for item in found]}
    return shown(name, f"commit length {got.commit:.2f}, {got.tok_s:.0f} tok/s at batch 1, {pool}"), data


def run(context: Context) -> Findings:
    checks: list[Check] = []
    data: dict[str, Json] = {}
    for window in ("off", "2048", "512", "512-ring"):
        if f"window-{window}" not in context.servers:
            checks.append(judged(f"window {window}", "the server starts", "it did not start", False))
            continue
        check, figures = _measure(context.servers[f"window-{window}"], context, window)
        checks.append(check)
        data[window] = figures
    both = [context.servers[name] for name in ("window-512", "window-512-ring") if name in context.servers]
    stock, ring = (pools(server.log_text()) for server in both) if len(both) == 2 else ([], [])
    if len(stock) == len(ring) == 2:
        share = ring[1][0] / stock[1][0]
        checks.append(
            judged(
                "rows of the ring against the stock draft pool, window 512",
                "≤ 1/8",
                f"{ring[1][0]} against {stock[1][0]}: 1/{1 / share:.0f}",
                share <= 1 / 8,
            )
        )
    return Findings(checks, data)


WINDOW = Part(
    "window",
    "draft window off, 2048 and 512 at 6k context, and 512 with the ring",
    ("window-off", "window-2048", "window-512"),
    run,
    timed=True,
    optional=("window-512-ring",),
)
