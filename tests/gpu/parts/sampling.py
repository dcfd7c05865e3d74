"""Temperature: tokens drawn through trees come from the same distributions as plainly drawn ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.gpu.client import Client, Prompt
from tests.gpu.context import Context, Findings, Part
from tests.gpu.parts.equality import PLAIN, TREE
from tests.gpu.prompts import held_out
from tests.gpu.records import Check, Json, judged, shown
from tests.gpu.statistics import Comparison, by_place, compare

LEVEL = 0.01
COPIES = 8
"""Answers of one request (``n``)."""


def draw(
    client: Client, prompts: Sequence[Prompt], each: int, tokens: int, temperature: float, **more: Json
) -> dict[Hashable, Counter[int]]:
    """``each`` answers to every prompt, sorted by what came before each token; first tokens (from prefill) left out.

    Args:
        more: further sampling parameters.
    """
    tasks = [(number, prompt) for number, prompt in enumerate(prompts) for _ in range(max(1, each // COPIES))]
    sampling = {"temperature": temperature, "n": min(COPIES, each), **more}

    def ask(task: tuple[int, Prompt]) -> list[tuple[int, ...]]:
        return [answer.ids for answer in client.generate_n(task[1], tokens, sampling)]

    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(ask, tasks))
    numbers = [number for (number, _), found in zip(tasks, answers, strict=True) for _ in found]
    return by_place(numbers, [ids for found in answers for ids in found])


def run(context: Context) -> Findings:
    prompts = held_out(context.store, "code", "chat")[: context.share_of(60, 6)]
    each, tokens = context.share_of(160, 48), 5
    plain, tree = context.client(PLAIN), context.client(TREE)
    tree.set_state(speculation=1, speculative_ddtree_budget=16, speculative_ddtree_topk=4)
    reference = draw(plain, prompts, each, tokens, 0.8)
    results: dict[str, Comparison] = {
        "plain 0.8 again": compare(reference, draw(plain, prompts, each, tokens, 0.8)),
        "tree 0.8": compare(reference, draw(tree, prompts, each, tokens, 0.8)),
        "tree 0.7": compare(reference, draw(tree, prompts, each, tokens, 0.7)),
        "tree greedy": compare(reference, draw(tree, prompts, each, tokens, 0.0)),
    }
    same, other = f"not rejected at {LEVEL:.0%}", f"rejected at {LEVEL:.0%}"
    checks = []
    for name, result in results.items():
        alike = name.endswith(("0.8", "again"))
        met = (result.p >= LEVEL) if alike else (result.p < LEVEL)
        checks.append(judged(f"{name} against plain 0.8, frequencies", same if alike else other, result.text, met))
    narrow = {"min_p": 0.1, "top_p": 0.9, "top_k": 20}
    few = prompts[: max(6, len(prompts) // 3)]
    result = compare(draw(plain, few, each, tokens, 0.8, **narrow), draw(tree, few, each, tokens, 0.8, **narrow))
    name = "min_p 0.1, top_p 0.9 and top_k 20, tree against plain, frequencies"
    checks.append(judged(name, same, result.text, result.p >= LEVEL))
    draws = results["tree 0.8"]
    enough = draws.draws >= 20000 * min(1.0, context.scale) and len(prompts) >= min(50, 6)
    checks.append(
        judged("size of that comparison", "≥ 20,000 draws, ≥ 50 prompts", f"{draws.draws} draws, {len(prompts)} prompts", enough)
    )
    return Findings(checks, {name: result.text for name, result in results.items()})


def refusals(context: Context) -> Findings:
    """What cannot be right at every node is refused when it comes in, and the server lives on."""
    from tests.gpu.client import ServerError

    tree = context.client(TREE)
    prompt = held_out(context.store, "chat")[0]
    tree.set_state(speculation=1)
    before = tree.generate(prompt, 32)
    checks: list[Check] = []
    cases: dict[str, dict[str, object]] = {
        "min_p 0.1": {"sampling": {"temperature": 0.8, "min_p": 0.1}},
        "frequency_penalty 0.5": {"sampling": {"temperature": 0.8, "frequency_penalty": 0.5}},
        "return_logprob": {"sampling": {"temperature": 0.0}, "return_logprob": True},
        "json_schema": {"sampling": {"temperature": 0.0, "json_schema": '{"type": "object"}'}},
    }
    for name, case in cases.items():
        more = {key: value for key, value in case.items() if key != "sampling"}
        try:
            tree.generate(prompt, 16, case["sampling"], **more)  # type: ignore[arg-type]
        except ServerError as error:
            checks.append(judged(name, "right at every node, or HTTP 400", str(error)[:160], error.status == 400))
        else:
            checks.append(shown(name, "answered; whether rightly is for the frequencies to tell"))
    alive = tree.generate(prompt, 32).ids == before.ids
    checks.append(judged("after these", "server lives, same text", "same text" if alive else "another text", alive))
    return Findings(checks, {})


TEMPERATURE = Part("temperature", "token frequencies at temperature 0.8", (TREE, PLAIN), run)
REFUSALS = Part("refusals", "parameters that trees cannot serve", (TREE,), refusals)
