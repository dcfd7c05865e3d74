"""A request that begins like an earlier one starts from that one's caches, and goes on exactly as from a cold start."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine_launch.embedded.api import Algorithm, GenerateRequest, TokenEvent
from engine_launch.embedded.draft_kv import DraftKV
from engine_launch.embedded.drafter import ContextRows, DFlashDrafter
from engine_launch.embedded.engine import EmbeddedEngine
from engine_launch.embedded.prefix_cache import PrefixCache, shared_length
from engine_launch.embedded.target import Segment, TargetModel
from engine_launch.embedded.target_kv import TargetKV
from tests.engine.engines import Recorder, running
from tests.engine.models import (
    Answer,
    drafter_config,
    greedy,
    prompts,
    submit,
    tiny_drafter,
    tiny_engine,
    tiny_settings,
    tiny_target,
)

TARGET = tiny_target()
WINDOW = 16
DRAFTER = tiny_drafter(TARGET, drafter_config("ssf", window=WINDOW))
TEXT = prompts(1, 200)[0]
TOKENS = 30


@pytest.fixture(scope="module")
def target() -> TargetModel:
    return TARGET


class Caches:
    """Target and draft cache of one request, filled by hand."""

    def __init__(self, draft_window: int, drafter: DFlashDrafter = DRAFTER) -> None:
        self.kv: TargetKV = TARGET.new_kv(250)
        self.draft: DraftKV = drafter.new_kv(draft_window)

    @torch.inference_mode()
    def read(self, tokens: list[int]) -> None:
        """Go on with ``tokens``, as prefill and commits do."""
        if not tokens:
            return
        start = self.kv.length
        positions = torch.arange(start, start + len(tokens))
        out = TARGET.forward(torch.tensor(tokens), positions, [Segment(self.kv, len(tokens))], DRAFTER.taps)
        self.kv.commit(range(len(tokens)))
        assert out.features is not None
        DRAFTER.append([ContextRows(self.draft, out.features)])


def same(one: Caches, other: Caches) -> None:
    assert one.kv.length == other.kv.length
    length = one.kv.length
    assert (one.kv.keys[:, :, :length] - other.kv.keys[:, :, :length]).abs().max() < 1e-9
    assert (one.kv.values[:, :, :length] - other.kv.values[:, :, :length]).abs().max() < 1e-9
    for ours, theirs in zip(one.draft.stores, other.draft.stores, strict=True):
        assert ours.slot_positions().tolist() == theirs.slot_positions().tolist()
        assert (ours.rows[:, :, :, : ours.visible] - theirs.rows[:, :, :, : theirs.visible]).abs().max() < 1e-9


@given(
    prompt=st.integers(1, 60),
    answer=st.integers(0, 60),
    shared=st.integers(1, 120),
    more=st.integers(1, 60),
    windows=st.tuples(st.sampled_from([0, 8, 24]), st.sampled_from([0, 8, 24])),
)
def test_both_caches_are_those_of_a_cold_start_whatever_was_shared(
    prompt: int, answer: int, shared: int, more: int, windows: tuple[int, int]
) -> None:
    first = Caches(windows[0])
    first.read(TEXT[:prompt])
    at_prompt = first.draft.snapshot()
    first.read(TEXT[prompt : prompt + answer])
    shared = min(shared, prompt + answer)
    other = [(token + 1) % 24 for token in TEXT]
    wanted = [*TEXT[:shared], *other[shared : shared + more]]

    cache = PrefixCache()
    cache.add(TEXT[: prompt + answer], first.kv, at_prompt, first.draft)
    warm, cold = Caches(windows[1]), Caches(windows[1])
    match = cache.find(wanted, warm.draft)
    if match is not None:
        assert 0 < match.length <= min(shared, len(wanted) - 1)
        match.copy_to(warm.kv, warm.draft)
    warm.read(wanted[warm.kv.length :])
    cold.read(wanted)
    same(warm, cold)


def test_the_turn_after_an_answer_and_the_same_prompt_again_reuse_all_there_is() -> None:
    first = Caches(0)
    first.read(TEXT[:60])
    at_prompt = first.draft.snapshot()
    first.read(TEXT[60:100])
    cache = PrefixCache()
    # The answer ended three tokens before the last verify did.
    cache.add(TEXT[:97], first.kv, at_prompt, first.draft)
    for prompt, length in ((TEXT[:97] + [0] * 9, 97), (TEXT[:60], 59), (TEXT[:60] + [0] * 5, 60)):
        match = cache.find(prompt, DRAFTER.new_kv(0))
        assert match is not None
        assert match.length == length
    # Another question behind an earlier part of the text: the rings have to be filled again.
    match = cache.find(TEXT[:40] + [0] * 5, DRAFTER.new_kv(0))
    assert match is not None
    assert match.length == 45 - (WINDOW - 1)


@given(st.lists(st.integers(0, 2), max_size=12), st.lists(st.integers(0, 2), max_size=12))
def test_the_shared_length_is_that_of_the_common_beginning(one: list[int], other: list[int]) -> None:
    expected = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    assert shared_length(one, other) == expected


def kept(cache: PrefixCache, tokens: list[int]) -> None:
    caches = Caches(0)
    caches.read(tokens)
    cache.add(tokens, caches.kv, caches.draft.snapshot(), caches.draft)


def test_the_longest_unused_entry_goes_first_and_the_bound_holds() -> None:
    one = PrefixCache()
    kept(one, TEXT[:50])
    cache = PrefixCache(max_bytes=int(one.bytes * 3.5))
    starts = [[start, *TEXT[:49]] for start in range(4)]
    for text in starts[:3]:
        kept(cache, text)
    assert cache.find([*starts[0], 1], None) is not None
    kept(cache, starts[3])
    assert len(cache) == 3
    assert cache.bytes <= one.bytes * 3.5
    found = [match is not None and match.length == 50 for text in starts if (match := cache.find([*text, 1], None)) or True]
    assert found == [True, False, True, True]


def test_a_longer_conversation_takes_the_place_of_its_beginning() -> None:
    cache = PrefixCache()
    kept(cache, TEXT[:20])
    kept(cache, TEXT[:50])
    assert len(cache) == 1
    before = cache.bytes
    kept(cache, TEXT[:50])
    assert (len(cache), cache.bytes) == (1, before)
    cache.clear()
    assert (len(cache), cache.bytes) == (0, 0)


def test_an_entry_larger_than_the_bound_is_not_kept() -> None:
    cache = PrefixCache(max_bytes=1000)
    kept(cache, TEXT[:20])
    assert (len(cache), cache.bytes) == (0, 0)


def test_an_entry_does_not_keep_the_room_that_its_request_did_not_use() -> None:
    cache, caches = PrefixCache(), Caches(0)
    caches.read(TEXT[:20])
    cache.add(TEXT[:20], caches.kv, (), None)
    assert cache.bytes == 20 * TARGET.new_kv(1).allocated_bytes < caches.kv.allocated_bytes / 10


def turns(engine: EmbeddedEngine, count: int) -> tuple[list[list[int]], list[int]]:
    """A conversation: every prompt is the one before with its answer and eight tokens more. Answers and cached tokens."""
    history = TEXT[:25]
    answers: list[list[int]] = []
    cached: list[int] = []
    for turn in range(count):
        answer = submit(engine, f"turn-{turn}", history, greedy(TOKENS)).wait()
        answers.append(answer.ids)
        cached.append(answer.last.stats.cached_tokens)
        history = [*history, *answer.ids, *TEXT[100 + 8 * turn : 108 + 8 * turn]]
    return answers, cached


@pytest.mark.parametrize("algorithm", list(Algorithm))
@pytest.mark.parametrize("draft_window", [0, 8])
def test_turns_of_a_conversation_are_answered_as_from_a_cold_start(
    target: TargetModel, algorithm: Algorithm, draft_window: int
) -> None:
    found = []
    for size in (0, 1 << 20):
        drafter = None if algorithm is Algorithm.PLAIN else DRAFTER
        settings = tiny_settings(algorithm, budget=12, draft_window=draft_window)
        with running(tiny_engine(target, drafter, settings, prefix_cache_bytes=size)) as engine:
            found.append(turns(engine, 4))
    (cold, none), (warm, cached) = found
    assert warm == cold
    assert none == [0] * 4
    # All but the newest token of the answer before, which was never computed.
    assert cached == [0, *(25 + TOKENS * turn + 8 * (turn - 1) - 1 for turn in (1, 2, 3))]


def test_reuse_is_told_in_the_prefill_line_and_the_totals_and_a_flush_ends_it(target: TargetModel) -> None:
    log = Recorder()
    with running(tiny_engine(target, DRAFTER, tiny_settings(Algorithm.DDTREE), log=log)) as engine:
        submit(engine, "a", TEXT[:33], greedy(3)).wait()
        submit(engine, "b", TEXT[:33], greedy(3)).wait()
        stats = engine.stats()
        assert engine.flush_cache()
        assert (engine.stats().prefix_entries, engine.stats().prefix_bytes) == (0, 0)
        again = submit(engine, "c", TEXT[:33], greedy(3)).wait()
    assert [(event.new_tokens, event.cached_tokens) for event in log.prefill] == [
        *((16, 0), (16, 0), (1, 0)),
        (1, 32),
        *((16, 0), (16, 0), (1, 0)),
    ]
    assert [event.new_sequences for event in log.prefill] == [1, 0, 0, 1, 1, 0, 0]
    assert stats.cached_tokens_total == 32
    assert stats.realtime_prefill_tokens_total == 34
    assert (stats.prefix_entries > 0, stats.prefix_bytes > 0) == (True, True)
    assert again.last.stats.cached_tokens == 0


def test_a_flush_is_refused_while_a_request_runs(target: TargetModel) -> None:
    outcomes = []
    with running(tiny_engine(target)) as engine:
        answer = Answer()

        def flush_at_each_event(event: TokenEvent) -> None:
            if event.finish is None:
                outcomes.append(engine.flush_cache())
            answer(event)

        engine.submit(GenerateRequest("a", tuple(TEXT[:20]), greedy(5)), flush_at_each_event)
        answer.wait()
        assert engine.flush_cache()
    assert outcomes == [False] * 4


def test_what_is_kept_stays_within_its_bound_over_many_requests(target: TargetModel) -> None:
    bound = 600_000
    lengths = itertools.cycle((20, 90, 45, 150))
    with running(tiny_engine(target, DRAFTER, tiny_settings(Algorithm.DDTREE), chunk=256, prefix_cache_bytes=bound)) as engine:
        for number, text in zip(range(60), prompts(60, 150, seed=3), strict=True):
            submit(engine, str(number), text[: next(lengths)], greedy(4)).wait()
            assert 0 < engine.stats().prefix_bytes <= bound
        assert 2 < engine.stats().prefix_entries < 40
