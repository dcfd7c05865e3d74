"""A thousand requests of every kind: cancelled ones, shared prefixes, over-long prompts, several answers of one prompt."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.gpu.client import Client, Prompt, ServerError
from tests.gpu.context import Context, Findings, Part
from tests.gpu.prompts import held_out
from tests.gpu.records import judged
from tests.gpu.servers import Server

KINDS = ("plain", "plain", "cancelled", "prefix", "four answers", "sampled", "too long", "long")
LONGEST = 8192
"""SmolLM2's context, in tokens."""


def run(context: Context) -> Findings:
    short, long = held_out(context.store, "code", "chat"), held_out(context.store, "long")
    return requests(context.servers["tree16"], short, long, context.share_of(1000, 40))


def requests(server: Server, short: Sequence[Prompt], long: Sequence[Prompt], count: int) -> Findings:
    """``count`` requests of every kind to ``server``, made of these prompts."""
    client = server.client
    client.set_state(speculation=1, speculative_ddtree_budget=16, speculative_ddtree_topk=4)
    client.flush()
    reference = client.generate_all(short[:8], 48, 1)
    before = client.used_tokens()
    source = random.Random(11)
    tasks = [(source.choice(KINDS), source.choice(short), source.choice(long), source.random()) for _ in range(count)]
    outcomes: Counter[str] = Counter()
    with ThreadPoolExecutor(48) as pool:
        for outcome in pool.map(lambda task: _one(client, *task), tasks):
            outcomes[outcome] += 1
    time.sleep(2.0)
    client.flush()
    after = client.used_tokens()
    client.flush()
    again = client.generate_all(short[:8], 48, 1)
    bad = {name: n for name, n in outcomes.items() if name.startswith("failed")}
    log = server.log_text()
    leak = "memory leak detected" in log or "pool memory leak" in log
    same = sum(a.ids == b.ids for a, b in zip(reference, again, strict=True))
    listed = ", ".join(f"{name} {n}" for name, n in sorted(outcomes.items()))
    return Findings(
        [
            judged(f"{count} mixed requests, 48 at once", "no crash, none fails", listed, not bad),
            judged(
                "KV slots after them, cache emptied",
                "none leaked; SGLang's idle check passes",
                f"{before} in use before, {after} after; idle check {'FAILED' if leak else 'passed'}",
                after <= before and not leak,
            ),
            judged("the same prompts before and after, batch 1", "same text", f"{same} of 8", same == 8),
        ],
        {"outcomes": dict(outcomes)},
    )


def _one(client: Client, kind: str, short: Prompt, long: Prompt, chance: float) -> str:
    """One request; what came of it, in a word or two."""
    tokens = 16 + int(chance * 80)
    try:
        if kind == "cancelled":
            with contextlib.closing(client.stream(short, 400)) as events:
                for done in events:
                    if done > chance * 60:
                        break
            return "cancelled"
        if kind == "four answers":
            found = client.generate_n(short, tokens, {"temperature": 0.8, "n": 4})
            return "four answers" if len(found) == 4 and all(len(one.ids) == tokens for one in found) else "failed: n"
        if kind == "too long":
            prompt = (long * 40)[: LONGEST + 100]
            try:
                client.generate(prompt, 8)
            except ServerError as error:
                return "too long, refused" if error.status == 400 else f"failed: {error}"
            return "failed: too long was served"
        prompt = {"prefix": (*short, *short[5:], *short[: int(chance * 30)]), "long": long}.get(kind, short)
        answer = client.generate(
            prompt, tokens, {"temperature": 0.8, "top_p": 0.9} if kind == "sampled" else {"temperature": 0.0}
        )
        return kind if len(answer.ids) == tokens else f"failed: {len(answer.ids)} of {tokens} tokens"
    except ServerError as error:
        return f"failed: {str(error)[:120]}"


MIXED = Part("mixed", "1,000 mixed requests", ("tree16",), run)
