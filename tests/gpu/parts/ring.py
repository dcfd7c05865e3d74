"""The draft pool as a ring: answers, what the drafter sees, prefix hits, the window while running; and the pools foretold."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Sequence
from types import MappingProxyType

from engine_launch.doctor.draft_pool import read_start
from engine_launch.spec.sglang_checks import read_flags
from tests.gpu.client import Answer, Client, Prompt, ServerError, commit_length
from tests.gpu.context import Context, Findings, Part
from tests.gpu.parts.equality import EQUAL, differing
from tests.gpu.parts.window import pools
from tests.gpu.prompts import held_out
from tests.gpu.records import Check, Json, judged, shown
from tests.gpu.servers import ServerSpec, running
from tests.gpu.setups import RING_WINDOW, graphs, tree_flags

STOCK, RING = "tree32-window", "tree32-ring"
PORT = 32100
WITHIN = 0.02


def _rounds(answers: Sequence[Answer]) -> int:
    return sum(answer.verifies for answer in answers)


def _compare(context: Context, prompts: Sequence[Prompt], tokens: int, at_once: int, about: str) -> tuple[list[Check], Json]:
    """The ring's answers against plain decoding in place, and its rounds against the stock pool's with the same window."""
    plain = context.client(RING)
    plain.set_state(speculation=0)
    expected = plain.generate_all(prompts, tokens, at_once)
    plain.set_state(speculation=1)
    plain.flush()
    context.client(STOCK).flush()
    checks: list[Check] = []
    data: dict[str, Json] = {}
    for hits in ("without", "with"):
        stock, ring = (context.client(name).generate_all(prompts, tokens, at_once) for name in (STOCK, RING))
        equal = len(ring) - len(differing(expected, ring))
        cached = sum(answer.cached for answer in ring)
        name = f"ring, fp32 greedy, {about}, {hits} prefix hits"
        checks.append(judged(name, EQUAL, f"{equal} of {len(ring)} equal; {cached} tokens from the cache", equal == len(ring)))
        ratio = _rounds(ring) / max(1, _rounds(stock))
        said = f"{_rounds(ring)} against {_rounds(stock)} rounds; commit length {commit_length(ring):.3f}"
        said += f" against {commit_length(stock):.3f}"
        checks.append(
            judged(f"the same, rounds against the stock pool, window {RING_WINDOW}", "within 1 %", said, _near(ratio, 0.01))
        )
        data[hits] = {"equal": equal, "of": len(ring), "cached": cached, "rounds": [_rounds(ring), _rounds(stock)]}
    return checks, data


def _near(ratio: float, within: float) -> bool:
    return abs(ratio - 1) <= within


def _window_moves(client: Client, prompts: Sequence[Prompt], tokens: int) -> Check:
    """Smaller, back, and what the ring has no room for."""
    before = client.generate_all(prompts, tokens, 8)
    client.set_state(speculative_draft_window_size=RING_WINDOW // 4)
    small = client.generate_all(prompts, tokens, 8)
    client.set_state(speculative_draft_window_size=RING_WINDOW)
    after = client.generate_all(prompts, tokens, 8)
    refused = 0
    for window in (0, 4 * RING_WINDOW):
        with contextlib.suppress(ServerError):
            client.set_state(speculative_draft_window_size=window)
            continue
        refused += 1
    differ = len(differing(before, small)) + len(differing(before, after))
    said = f"{differ} of {2 * len(before)} answers differ; {refused} of 2 changes that have no room refused; commit length "
    said += f"{commit_length(before):.2f}, {commit_length(small):.2f}, {commit_length(after):.2f}"
    return judged("ring, window smaller and back while running", "equal, both refused", said, not differ and refused == 2)


def run(context: Context) -> Findings:
    for name in (STOCK, RING):
        context.client(name).set_state(
            speculation=1,
            speculative_ddtree_budget=16,
            speculative_ddtree_topk=4,
        )
    prompts = [prompt for prompt in held_out(context.store, "code", "chat") if len(prompt) > 8]
    prompts.sort(key=len, reverse=True)
    tokens = context.share_of(96, 24)
    many, data = _compare(context, prompts[: context.share_of(48, 8)], tokens, 8, "batch 8")
    one, single = _compare(context, prompts[: context.share_of(6, 2)], tokens, 1, "batch 1")
    checks = [*many, *one, _window_moves(context.client(RING), prompts[: context.share_of(16, 8)], tokens)]
    state = context.client(RING).states()[0].get("ddtree", {}).get("draft_pool", {})
    said = ", ".join(f"{key} {value}" for key, value in state.items())
    checks.append(judged("ring, hits that left less than a window", "none", said, state.get("short_views") == 0))
    return Findings(checks, {"batch_8": data, "batch_1": single, "draft_pool": state})


def _free_bytes(device: int) -> int:
    command = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits", f"--id={device}"]
    return int(subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.split()[0]) << 20


def _start(context: Context, name: str, *more: str) -> tuple[list[Check], Json, int]:
    """Foretell a start from its flags, as the doctor does, and then start it."""
    drafter = context.store / "drafter"
    flags = ("--mem-fraction-static=0.15", "--disable-cuda-graph", *graphs(32), *tree_flags(drafter, widths="17", most=16), *more)
    spec = ServerSpec(name, context.store / "target", flags, MappingProxyType({}))
    start = read_start(read_flags(spec.command(PORT)[3:]))
    if start is None:
        raise ValueError("the checkpoints cannot be read")
    available = start.available(_free_bytes(context.devices[0]))
    assert available is not None
    foretold = start.ring(available, start.window) if "ring" in name and start.window else start.stock(available)
    with running([spec], context.out / "logs", seconds=150, first_port=PORT, devices=context.devices) as servers:
        tokens = int(servers[name].client.info()["max_total_num_tokens"])
        found = pools(servers[name].log_text())
    rows, size = found[1]
    said = f"{foretold.tokens} tokens foretold, {tokens} found; draft pool {foretold.draft_bytes / 2**30:.3f} GB of "
    said += f"{foretold.draft_rows} rows foretold, {size:.2f} GB of {rows} found"
    near = _near(foretold.tokens / tokens, WITHIN) and _near(foretold.draft_rows / rows, WITHIN)
    near &= abs(foretold.draft_bytes / 2**30 - size) <= max(0.011, WITHIN * size)
    return [judged(f"{name}: pools foretold before the start", "within 2 %", said, near)], [foretold.tokens, tokens], tokens


def foretell(context: Context) -> Findings:
    window = "--speculative-draft-window-size=512"
    stock, stock_data, before = _start(context, "pool-stock", window)
    ring, ring_data, after = _start(context, "pool-ring", window, "--speculative-ddtree-draft-pool=ring")
    gained = shown("tokens gained by the ring, window 512, 32 requests", f"{after - before} ({after / before - 1:+.1%})")
    return Findings([*stock, *ring, gained], {"stock": stock_data, "ring": ring_data})


RING_PART = Part("ring", "the draft pool as a ring against plain decoding and the stock pool, fp32", (STOCK, RING), run)
POOL = Part("pool", "KV pools foretold before a start, stock and ring (starts its own servers)", (), foretell, timed=True)
