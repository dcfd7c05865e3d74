"""Budget, top-k, window and speculation changed again and again while requests run: the text may not change."""

from __future__ import annotations

import random
import threading
import time

from tests.gpu.client import Answer, Prompt
from tests.gpu.context import Context, Findings, Part
from tests.gpu.parts.equality import TREE, differing
from tests.gpu.prompts import held_out
from tests.gpu.records import judged
from tests.gpu.setups import BUDGETS, TOPKS

WINDOWS = (0, 64, 512)


def run(context: Context) -> Findings:
    tree = context.client(TREE)
    prompts = held_out(context.store, "code", "chat")[: context.share_of(64, 4)]
    tokens, changes = context.share_of(96, 24), context.share_of(50, 8)
    window = int(tree.states()[0].get("speculative_draft_window_size") or 0)
    tree.set_state(speculation=0)
    plain = tree.generate_all(prompts, tokens, 8)
    tree.set_state(speculation=1)
    rounds: list[list[Answer]] = []
    stop = threading.Event()

    def load() -> None:
        while not stop.is_set() or not rounds:
            rounds.append(tree.generate_all(prompts, tokens, 8))

    errors: list[BaseException] = []
    thread = threading.Thread(target=_caught, args=(load, errors))
    thread.start()
    source = random.Random(3)
    done: list[dict[str, int]] = []
    try:
        for number in range(changes):
            setting = _setting(source, number)
            tree.set_state(**setting)
            done.append(setting)
            time.sleep(source.uniform(0.02, 0.25))
    finally:
        stop.set()
        thread.join()
        tree.set_state(
            speculation=1, speculative_ddtree_budget=16, speculative_ddtree_topk=4, speculative_draft_window_size=window
        )
    if errors:
        raise errors[0]
    unequal = sum(len(differing(plain, answers)) for answers in rounds)
    count = sum(len(answers) for answers in rounds)
    name = f"{len(done)} changes under load, 8 requests at once"
    return Findings(
        [judged(name, "outputs equal, no restart", f"{count - unequal} of {count} answers equal, one start", not unequal)],
        {"changes": list(done)},
    )


def _setting(source: random.Random, number: int) -> dict[str, int]:
    """Each of the four in turn, so that all are changed."""
    return (
        {"speculative_ddtree_budget": source.choice(BUDGETS)},
        {"speculative_ddtree_topk": source.choice(TOPKS)},
        {"speculative_draft_window_size": source.choice(WINDOWS)},
        {"speculation": source.choice((0, 1))},
    )[number % 4]


def _caught(action: object, errors: list[BaseException]) -> None:
    try:
        assert callable(action)
        action()
    except BaseException as error:
        errors.append(error)


def per_request(context: Context) -> Findings:
    """Settings of single requests, all in one batch: the text is the same, and each one's commits are its own."""
    tree = context.client(TREE)
    prompt: Prompt = held_out(context.store, "code")[1]
    settings: list[dict[str, int | bool]] = [
        {"speculative": False},
        {"ddtree_budget": 1},
        {"ddtree_budget": 7, "ddtree_topk": 1},
        {"ddtree_budget": 32, "ddtree_topk": 8},
    ]
    answers: list[Answer | None] = [None] * len(settings)

    def ask(index: int) -> None:
        answers[index] = tree.generate(prompt, 96, {"temperature": 0.0, "custom_params": settings[index]})

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(len(settings))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    got = [answer for answer in answers if answer is not None]
    same = len(got) == len(settings) and len({answer.ids for answer in got}) == 1
    counts = ", ".join(f"{setting}: {answer.verifies}" for setting, answer in zip(settings, got, strict=False))
    falling = len(got) == len(settings) and got[1].verifies > got[3].verifies
    return Findings(
        [
            judged(
                "settings of single requests in one batch",
                "same text, fewer verifies with more nodes",
                f"same text: {same}; verifies: {counts}",
                same and falling,
            )
        ],
        {},
    )


HOT = Part("hot", "50 changes under load", (TREE,), run)
REQUESTS = Part("requests", "budget and speculation chosen by single requests", (TREE,), per_request)
