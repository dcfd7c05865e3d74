"""Temperature: tokens drawn through trees come from the same distributions as plainly drawn ones."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.gpu.client import Client, Prompt
from tests.gpu.context import Context, Findings, Part
from tests.gpu.parts.equality import PLAIN, TREE
from tests.gpu.prompts import held_out
from tests.gpu.records import Check, Json, judged, shown
from tests.gpu.statistics import Comparison, Strata, by_place, compare

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
    # About a third of the draws fall where enough others do: prefixes are as the model draws them.
    # A place needs 20 in each sample, and the most frequent one of a small run has about half of a prompt's.
    each, tokens = context.share_of(400, 80), 4
    few = prompts[: max(6, len(prompts) // 3)]
    plain, tree = context.client(PLAIN), context.client(TREE)
    tree.set_state(speculation=1, speculative_ddtree_budget=16, speculative_ddtree_topk=4)
    with ThreadPoolExecutor(2) as pool:
        # The two servers draw at the same time.
        by_plain = pool.submit(_draws, plain, prompts, few, each, tokens, (0.8, 0.8))
        by_tree = pool.submit(_draws, tree, prompts, few, each, tokens, (0.8, 0.7, 0.0))
        (reference, again), narrow_reference = by_plain.result()
        (same, cooler, greedy), narrow = by_tree.result()
    results: dict[str, Comparison] = {
        "plain 0.8 again": compare(reference, again),
        "tree 0.8": compare(reference, same),
        "tree 0.7": compare(reference, cooler),
        "tree greedy": compare(reference, greedy),
    }
    not_rejected, rejected = f"not rejected at {LEVEL:.0%}", f"rejected at {LEVEL:.0%}"
    checks = []
    for name, result in results.items():
        alike = name.endswith(("0.8", "again"))
        met = (result.p >= LEVEL) if alike else (result.p < LEVEL)
        checks.append(judged(f"{name} against plain 0.8, frequencies", not_rejected if alike else rejected, result.text, met))
    result = compare(narrow_reference, narrow)
    name = "min_p 0.1, top_p 0.9 and top_k 20, tree against plain, frequencies"
    checks.append(judged(name, not_rejected, result.text, result.p >= LEVEL))
    checks.append(_size(results["tree 0.8"], reference, same, min(1.0, context.scale)))
    return Findings(checks, {name: result.text for name, result in results.items()})


NARROW: Mapping[str, Json] = {"min_p": 0.1, "top_p": 0.9, "top_k": 20}


def _draws(
    client: Client, prompts: Sequence[Prompt], few: Sequence[Prompt], each: int, tokens: int, temperatures: Sequence[float]
) -> tuple[list[Strata], Strata]:
    """Draws at each temperature, and those of ``few`` prompts with the distribution cut."""
    found: list[Strata] = []
    for temperature in temperatures:
        begun = time.monotonic()
        # Greedy answers are all alike: a fifth of them is enough, and to spare.
        found.append(draw(client, prompts, each if temperature else max(3 * COPIES, each // 5), tokens, temperature))
        print(f"    {client.base}: drawn at {temperature} in {time.monotonic() - begun:.0f} s", flush=True)
    return found, draw(client, few, each, tokens, 0.8, **NARROW)


def _size(result: Comparison, first: Strata, second: Strata, scale: float) -> Check:
    """Whether the comparison was as large as it must be; the places are the prompts with what was drawn after them."""
    prompts = {place[0] for place in first.keys() & second.keys() if isinstance(place, tuple)}
    enough = result.draws >= 20000 * scale and result.strata >= 50 * scale
    said = f"{result.draws} draws after {result.strata} prefixes of {len(prompts)} prompts"
    return judged("size of that comparison", "≥ 20,000 draws, ≥ 50 prefixes", said, enough)


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
