"""Settings changed while requests run: taken between rounds, answers unharmed, refusals with a reason."""

from __future__ import annotations

import threading

import pytest

from engine_launch.embedded.api import Algorithm, EngineError, GenerateRequest, RequestOverrides, TokenEvent
from engine_launch.embedded.target import TargetModel
from engine_launch.spec.kv import draft_kv_bytes
from tests.engine.engines import Recorder, oracle_engine, running
from tests.engine.models import (
    BLOCK,
    Answer,
    drafter_config,
    greedy,
    plain_answers,
    prompts,
    submit,
    tiny_drafter,
    tiny_engine,
    tiny_settings,
    tiny_target,
)

TOKENS = 150


@pytest.fixture(scope="module")
def target() -> TargetModel:
    return tiny_target()


@pytest.fixture(scope="module")
def texts() -> list[list[int]]:
    return prompts(2, 40)


@pytest.fixture(scope="module")
def answers(target: TargetModel, texts: list[list[int]]) -> list[list[int]]:
    return plain_answers(target, texts, TOKENS)


def test_every_hot_change_leaves_the_tokens_of_a_running_greedy_request_as_they_are(
    target: TargetModel, texts: list[list[int]], answers: list[list[int]]
) -> None:
    changes = iter(
        [
            ("speculative_ddtree_budget", 33),
            ("speculative_draft_window_size", 8),
            ("speculation", 0),
            ("speculative_ddtree_topk", 2),
            ("speculation", 1),
            ("speculative_ddtree_budget", 1),
            ("speculative_draft_window_size", 0),
            ("speculative_draft_window_size", 4),
        ]
    )
    with oracle_engine(target, texts, answers) as engine:
        answer = Answer()

        def change_after_each_event(event: TokenEvent) -> None:
            answer(event)
            if name_and_value := next(changes, None):
                assert engine.change(*name_and_value)

        engine.submit(GenerateRequest("a", tuple(texts[0]), greedy(TOKENS)), change_after_each_event)
        other = submit(engine, "b", texts[1], greedy(TOKENS))
        assert answer.wait().ids == answers[0]
        assert other.wait().ids == answers[1]
        assert engine.settings.draft_window == 4
        assert engine.startup_settings.tree_budget == 8
    assert next(changes, None) is None


def test_a_changed_budget_is_the_size_of_the_next_tree(
    target: TargetModel, texts: list[list[int]], answers: list[list[int]]
) -> None:
    with oracle_engine(target, texts, answers, budget=3) as engine:
        before = submit(engine, "a", texts[0], greedy(8), record_rounds=True).wait()
        assert engine.change("speculative_ddtree_budget", 12)
        after = submit(engine, "b", texts[1], greedy(8), record_rounds=True).wait()
    assert {len(event.round.tokens) for event in before.events if event.round} == {3}
    assert {len(event.round.tokens) for event in after.events if event.round} == {12}


def test_speculation_off_decodes_plainly_but_feeds_the_drafter_so_that_it_can_go_on_again(
    target: TargetModel, texts: list[list[int]], answers: list[list[int]]
) -> None:
    with oracle_engine(target, texts, answers, accuracy=1.0) as engine:
        assert engine.change("speculation", 0)
        answer = Answer()
        off_for = 10

        def switch_on_later(event: TokenEvent) -> None:
            answer(event)
            if len(answer.events) == off_for:
                engine.change("speculation", 1)

        engine.submit(GenerateRequest("a", tuple(texts[0]), greedy(TOKENS)), switch_on_later)
        assert answer.wait().ids == answers[0]
    assert all(len(event.token_ids) == 1 for event in answer.events[:off_for])
    # With an oracle every block is accepted whole: the draft cache cannot have missed a token.
    assert all(len(event.token_ids) == BLOCK for event in answer.events[off_for:-1])


def test_a_compact_cache_switched_on_frees_memory_of_running_requests(target: TargetModel) -> None:
    text = prompts(1, 200)[0]
    config = drafter_config("ssf", window=16)
    freed = threading.Event()
    with running(tiny_engine(target, tiny_drafter(target, config), tiny_settings(Algorithm.DDTREE), chunk=256)) as engine:
        sizes: list[int] = []

        def listen(event: TokenEvent) -> None:
            sizes.append(engine.stats().draft_kv_bytes)
            if len(sizes) == 2:
                engine.change("speculative_draft_window_size", 8)
            if len(sizes) == 4:
                freed.set()

        engine.submit(GenerateRequest("a", tuple(text), greedy(50)), listen)
        assert freed.wait(30)
        engine.abort("a")
    before, after = (draft_kv_bytes(config, len(text), layers_window=16, draft_window=window, dtype_bytes=8) for window in (0, 8))
    assert sizes[1] == before
    assert sizes[3] == after < before / 4


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("speculative_ddtree_budget", -1, "budget is -1"),
        ("speculative_ddtree_budget", 2.5, "not a whole number"),
        ("speculative_ddtree_budget", float("nan"), "not a whole number"),
        ("speculative_ddtree_topk", 0, "top-k is 0"),
        ("speculative_draft_window_size", BLOCK - 1, "at least the block size"),
        ("speculative_draft_window_size", 1e30, "at most 1048576"),
        ("speculative_ddtree_budget", 1e30, "1 to 256 nodes"),
        ("speculation", 2, "0 or 1"),
        ("max_running_requests", 4, "cannot be changed while running"),
    ],
)
def test_a_refused_change_changes_nothing_and_says_why(target: TargetModel, name: str, value: float, why: str) -> None:
    log = Recorder()
    with running(tiny_engine(target, tiny_drafter(target), tiny_settings(Algorithm.DDTREE), log=log)) as engine:
        assert not engine.change(name, value)
        assert engine.settings == engine.startup_settings
    assert why in log.changes[0].reason
    assert not log.changes[0].accepted


def test_an_accepted_change_is_told_with_its_old_value(target: TargetModel) -> None:
    log = Recorder()
    with running(tiny_engine(target, tiny_drafter(target), tiny_settings(Algorithm.DDTREE, budget=8), log=log)) as engine:
        assert engine.change("speculative_ddtree_budget", 16)
    assert [(change.name, change.old, change.new, change.accepted) for change in log.changes] == [
        ("speculative_ddtree_budget", 8, 16, True)
    ]


@pytest.mark.parametrize("name", ["speculative_ddtree_budget", "speculative_ddtree_topk"])
def test_a_chain_has_no_tree_to_change(target: TargetModel, name: str) -> None:
    with running(tiny_engine(target, tiny_drafter(target), tiny_settings(Algorithm.DFLASH))) as engine:
        assert not engine.change(name, 4)


def test_requests_bring_settings_of_their_own(target: TargetModel, texts: list[list[int]], answers: list[list[int]]) -> None:
    overrides = [RequestOverrides(ddtree_budget=2, ddtree_topk=1), RequestOverrides(speculative=False)]
    with oracle_engine(target, texts, answers, budget=9) as engine:
        running_answers = [
            submit(engine, str(i), text, greedy(TOKENS), override, record_rounds=True)
            for i, (text, override) in enumerate(zip(texts, overrides, strict=True))
        ]
        assert [answer.wait().ids for answer in running_answers] == answers
    chosen = [event.round for event in running_answers[0].events if event.round]
    assert {(record.tokens.__len__(), record.parents) for record in chosen} == {(2, (0, 1))}
    assert running_answers[1].last.stats.spec_verify_ct == 0


def test_a_request_may_speculate_while_the_engine_does_not(
    target: TargetModel, texts: list[list[int]], answers: list[list[int]]
) -> None:
    with oracle_engine(target, texts, answers) as engine:
        engine.change("speculation", 0)
        answer = submit(engine, "a", texts[0], greedy(TOKENS), RequestOverrides(speculative=True)).wait()
    assert answer.ids == answers[0]
    assert answer.last.stats.spec_verify_ct > 0


@pytest.mark.parametrize("overrides", [RequestOverrides(ddtree_budget=0), RequestOverrides(ddtree_topk=1000)])
def test_own_settings_out_of_bounds_are_refused(target: TargetModel, overrides: RequestOverrides) -> None:
    with (
        running(tiny_engine(target, tiny_drafter(target), tiny_settings(Algorithm.DDTREE))) as engine,
        pytest.raises(EngineError, match="possible"),
    ):
        submit(engine, "a", [3, 4], greedy(4), overrides)
