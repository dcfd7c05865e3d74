"""Requests that run at the same time compute a common beginning once, and answer as if each had computed it."""

from __future__ import annotations

import pytest

from engine_launch.embedded.api import Algorithm, GenerateRequest, TokenEvent
from engine_launch.embedded.engine import EmbeddedEngine
from engine_launch.embedded.prefix_sharing import WORTH_WAITING
from engine_launch.embedded.target import TargetModel
from tests.engine.engines import Recorder, running
from tests.engine.models import Answer, drafter_config, greedy, prompts, tiny_drafter, tiny_engine, tiny_settings, tiny_target

TARGET = tiny_target()
DRAFTER = tiny_drafter(TARGET, drafter_config("ssf", window=16))
TEXT, *TAILS = prompts(5, 200, seed=7)
SHARED = 100


@pytest.fixture(scope="module")
def target() -> TargetModel:
    return TARGET


def at_once(
    engine: EmbeddedEngine, texts: list[list[int]], tokens: int = 20, after: int = 1, first: list[int] | None = None
) -> list[Answer]:
    """Submit ``texts`` between two steps, when a first request has had ``after`` tokens; the answers, all finished."""
    answers = [Answer() for _ in texts]
    begun = Answer()
    seen = 0

    def listen(event: TokenEvent) -> None:
        nonlocal seen
        before, seen = seen, seen + len(event.token_ids)
        if before < after <= seen:
            for number, (text, answer) in enumerate(zip(texts, answers, strict=True)):
                engine.submit(GenerateRequest(f"r{number}", tuple(text), greedy(tokens)), answer)
        begun(event)

    engine.submit(GenerateRequest("first", tuple(first or [1, 2, 3]), greedy(after + 8)), listen)
    for answer in (begun, *answers):
        answer.wait()
    return answers


def forks(*tails: int) -> list[list[int]]:
    """Prompts with the same beginning and so many tokens of their own."""
    return [[*TEXT[:SHARED], *TAILS[number][:tail]] for number, tail in enumerate(tails)]


@pytest.mark.parametrize("algorithm", list(Algorithm))
@pytest.mark.parametrize("draft_window", [0, 8])
def test_answers_are_those_of_requests_that_share_nothing(target: TargetModel, algorithm: Algorithm, draft_window: int) -> None:
    texts = forks(30, 3, 60, 17)
    found = []
    for size in (0, 1 << 20):
        drafter = None if algorithm is Algorithm.PLAIN else DRAFTER
        settings = tiny_settings(algorithm, budget=12, draft_window=draft_window)
        with running(tiny_engine(target, drafter, settings, prefix_cache_bytes=size)) as engine:
            found.append(at_once(engine, texts))
    cold, warm = found
    assert [answer.ids for answer in warm] == [answer.ids for answer in cold]
    assert [answer.last.stats.cached_tokens for answer in cold] == [0] * 4
    assert [answer.last.stats.cached_tokens for answer in warm] == [0, SHARED, SHARED, SHARED]


def test_only_what_is_not_shared_is_computed_again(target: TargetModel) -> None:
    log = Recorder()
    texts = forks(30, 3, 60)
    with running(tiny_engine(target, DRAFTER, tiny_settings(Algorithm.DDTREE), log=log)) as engine:
        at_once(engine, texts)
        assert engine.stats().realtime_prefill_tokens_total == 3 + SHARED + 30 + 3 + 60
        assert engine.stats().cached_tokens_total == 2 * SHARED
    # The chunks of 16 end where the prompts part, and those who waited go on in the very next one.
    assert [event.new_tokens for event in log.prefill][1:9] == [16] * 6 + [4, 16]
    assert sum(event.new_sequences for event in log.prefill) == 4


def test_equal_prompts_are_computed_once_but_for_the_last_token(target: TargetModel) -> None:
    with running(tiny_engine(target, DRAFTER, tiny_settings(Algorithm.DDTREE))) as engine:
        answers = at_once(engine, forks(0, 0, 0))
        assert len({tuple(answer.ids) for answer in answers}) == 1
        assert [answer.last.stats.cached_tokens for answer in answers] == [0, SHARED - 1, SHARED - 1]


def test_a_request_takes_over_what_one_has_that_is_being_answered(target: TargetModel) -> None:
    (text, other) = forks(0, 10)
    with running(tiny_engine(target, DRAFTER, tiny_settings(Algorithm.DDTREE, budget=12))) as engine:
        (late,) = at_once(engine, [other], after=20, first=text)
        assert late.last.stats.cached_tokens == SHARED
    with running(tiny_engine(target, DRAFTER, tiny_settings(Algorithm.DDTREE), prefix_cache_bytes=0)) as engine:
        (cold,) = at_once(engine, [other])
    assert late.ids == cold.ids


def test_a_short_common_beginning_keeps_nobody_waiting(target: TargetModel) -> None:
    texts = [[*TEXT[: WORTH_WAITING - 1], *tail[:9]] for tail in TAILS[:2]]
    with running(tiny_engine(target, DRAFTER, tiny_settings(Algorithm.DDTREE), chunk=256)) as engine:
        answers = at_once(engine, texts)
    assert [answer.last.stats.cached_tokens for answer in answers] == [0, 0]


def test_who_waits_for_a_request_that_is_aborted_goes_on_alone(target: TargetModel) -> None:
    texts = forks(30, 3, 60)

    class AbortsTheLeader(Recorder):
        """Aborts the first of the requests that wait for each other when it has half of what they share."""

        def prefill_batch(self, event: object) -> None:
            if len(self.prefill) == 4:
                engine.abort("r0")
            super().prefill_batch(event)  # type: ignore[arg-type]

    with running(tiny_engine(target, DRAFTER, tiny_settings(Algorithm.DDTREE), prefix_cache_bytes=0)) as engine:
        cold = at_once(engine, texts)
    with running(tiny_engine(target, DRAFTER, tiny_settings(Algorithm.DDTREE), log=AbortsTheLeader())) as engine:
        answers = at_once(engine, texts)
    assert answers[0].last.finish is not None
    assert answers[0].last.finish.type == "abort"
    assert [answer.ids for answer in answers[1:]] == [answer.ids for answer in cold[1:]]
    assert [answer.last.stats.cached_tokens for answer in answers[1:]] == [0, SHARED]
