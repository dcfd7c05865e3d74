"""The decode loop: answers end where they should, requests do not disturb each other, figures add up."""

from __future__ import annotations

import threading
import time
import traceback

import pytest
import torch

from engine_launch.embedded.api import (
    Algorithm,
    Engine,
    EngineError,
    EngineUnavailable,
    GenerateRequest,
    RequestOverrides,
    SamplingParams,
    TokenEvent,
)
from engine_launch.embedded.target import TargetModel
from tests.engine.engines import Recorder, oracle_engine, running
from tests.engine.models import (
    BLOCK,
    Answer,
    OracleDrafter,
    greedy,
    plain_answers,
    prompts,
    submit,
    tiny_drafter,
    tiny_engine,
    tiny_settings,
    tiny_target,
)

TOKENS = 40


@pytest.fixture(scope="module")
def target() -> TargetModel:
    return tiny_target()


@pytest.fixture(scope="module")
def texts() -> list[list[int]]:
    return prompts(3, 20)


@pytest.fixture(scope="module")
def answers(target: TargetModel, texts: list[list[int]]) -> list[list[int]]:
    return plain_answers(target, texts, TOKENS)


class HeldAnswer(Answer):
    """Its request goes no further than its first event before it is let go: nothing is over sooner than a test can look at it."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()
        self.let_go = threading.Event()

    def __call__(self, event: TokenEvent) -> None:
        super().__call__(event)
        self.begun.set()
        assert self.let_go.wait(150)


def submit_held(engine: Engine, rid: str, prompt: list[int], tokens: int) -> HeldAnswer:
    answer = HeldAnswer()
    engine.submit(GenerateRequest(rid, tuple(prompt), greedy(tokens)), answer)
    assert answer.begun.wait(150)
    return answer


@pytest.mark.parametrize("algorithm", [Algorithm.DFLASH, Algorithm.DDTREE])
def test_requests_that_run_together_get_their_own_answers(
    target: TargetModel, texts: list[list[int]], answers: list[list[int]], algorithm: Algorithm
) -> None:
    with oracle_engine(target, texts, answers, algorithm) as engine:
        running_answers = [submit(engine, str(i), text, greedy(TOKENS)) for i, text in enumerate(texts)]
        assert [answer.wait().ids for answer in running_answers] == answers


def test_speculation_commits_more_than_one_token_a_verify_and_the_figures_add_up(
    target: TargetModel, texts: list[list[int]], answers: list[list[int]]
) -> None:
    log = Recorder()
    with oracle_engine(target, texts, answers, log=log) as engine:
        answer = submit(engine, "a", texts[0], greedy(TOKENS), record_rounds=True).wait()
        stats = engine.stats()
    figures = answer.last.stats
    records = [event.round for event in answer.events if event.round is not None]
    assert figures.completion_tokens == len(answer.ids) == TOKENS
    assert figures.spec_verify_ct == sum(figures.spec_correct_drafts_histogram) == len(records) < TOKENS / 1.5
    assert figures.spec_num_correct_drafts == sum(i * n for i, n in enumerate(figures.spec_correct_drafts_histogram))
    assert figures.spec_num_proposed_drafts == sum(len(record.tokens) for record in records)
    # All but the first token come from verifies; the last verify may bring more than the answer may hold.
    assert TOKENS - 1 <= sum(len(record.path) for record in records) <= TOKENS - 1 + BLOCK
    assert stats.accept_histogram == figures.spec_correct_drafts_histogram
    assert stats.generation_tokens_total == TOKENS
    assert stats.requests_total == 1
    assert stats.verify_calls_total == figures.spec_verify_ct
    assert stats.realtime_decode_tokens_total == TOKENS - 1
    assert stats.avg_accept_length == pytest.approx(sum(len(r.path) for r in records) / len(records))
    assert [event.correct_drafts for event in log.verified] == [(len(records[0].path) - 1,)]
    assert sum(event.new_tokens for event in log.prefill) == len(texts[0])
    assert all(event.accept_length is not None and event.accept_length >= 1 for event in log.decode)


def test_a_round_record_says_what_was_proposed_and_what_was_kept(
    target: TargetModel, texts: list[list[int]], answers: list[list[int]]
) -> None:
    with oracle_engine(target, texts, answers) as engine:
        answer = submit(engine, "a", texts[0], greedy(TOKENS), record_rounds=True).wait()
        recent = engine.recent_rounds(3)
    records = [event.round for event in answer.events if event.round is not None]
    whole = [*texts[0], *answer.ids]
    for record in records:
        committed = [*(record.tokens[node - 1] for node in record.path[1:]), record.bonus]
        assert whole[record.start] == record.root
        assert whole[record.start + 1 : record.start + 1 + len(committed)] == committed[: len(whole) - record.start - 1]
    assert list(recent) == records[-3:]


def test_the_rounds_time_is_split_into_its_parts_and_plain_steps_are_not_in_it(
    target: TargetModel, texts: list[list[int]], answers: list[list[int]]
) -> None:
    with oracle_engine(target, texts, answers) as engine:
        begin = time.perf_counter()
        answer = submit(engine, "a", texts[0], greedy(TOKENS), record_rounds=True).wait()
        elapsed = time.perf_counter() - begin
        stats = engine.stats()
        assert engine.change("speculation", 0)
        submit(engine, "b", texts[1], greedy(5)).wait()
        plain = engine.stats()
    records = [event.round for event in answer.events if event.round is not None]
    assert stats.rounds == len(records)
    assert list(stats.round_seconds) == ["append", "draft", "topk", "build", "verify", "commit"]
    for part, seconds in stats.round_seconds.items():
        assert seconds == pytest.approx(sum(record.seconds[part] for record in records))
        assert seconds > 0
    assert sum(stats.round_seconds.values()) < elapsed
    assert (plain.rounds, plain.round_seconds) == (stats.rounds, stats.round_seconds)


def test_plain_decoding_counts_no_verifies(target: TargetModel, texts: list[list[int]]) -> None:
    with running(tiny_engine(target)) as engine:
        answer = submit(engine, "a", texts[0], greedy(5)).wait()
    assert answer.last.stats.spec_verify_ct == 0
    assert answer.last.stats.spec_correct_drafts_histogram == ()
    assert [len(event.token_ids) for event in answer.events] == [1] * 5


@pytest.mark.parametrize("position", range(1, 12))
def test_a_stop_token_inside_an_accepted_path_ends_the_answer_there(
    target: TargetModel, texts: list[list[int]], answers: list[list[int]], position: int
) -> None:
    stop = answers[0][position]
    expected = answers[0][: answers[0].index(stop) + 1]
    sampling = greedy(TOKENS, stop_token_ids=(stop,))
    with oracle_engine(target, texts, answers, accuracy=1.0) as engine:
        answer = submit(engine, "a", texts[0], sampling).wait()
    assert answer.ids == expected
    assert answer.last.finish is not None
    assert (answer.last.finish.type, answer.last.finish.matched) == ("stop", stop)


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 6, 7])
def test_max_new_tokens_inside_a_block_is_exact(
    target: TargetModel, texts: list[list[int]], answers: list[list[int]], limit: int
) -> None:
    with oracle_engine(target, texts, answers, accuracy=1.0) as engine:
        answer = submit(engine, "a", texts[0], greedy(limit)).wait()
    assert answer.ids == answers[0][:limit]
    assert answer.last.finish is not None
    assert answer.last.finish.type == "length"


def test_an_answer_may_end_exactly_at_the_context_limit(target: TargetModel) -> None:
    text = prompts(1, 200)[0]
    with running(tiny_engine(target, tiny_drafter(target), tiny_settings(Algorithm.DDTREE, budget=32))) as engine:
        room = engine.context_length - len(text)
        answer = submit(engine, "a", text, greedy(room)).wait()
        assert len(answer.ids) == room
        with pytest.raises(EngineError, match="context length"):
            submit(engine, "b", text, greedy(room + 1))


def test_a_prompt_of_one_token_works(target: TargetModel) -> None:
    expected = plain_answers(target, [[5]], 10)[0]
    with running(tiny_engine(target, tiny_drafter(target), tiny_settings(Algorithm.DDTREE))) as engine:
        assert submit(engine, "a", [5], greedy(10)).wait().ids == expected


def test_a_long_prompt_is_prefilled_in_chunks_while_others_decode(target: TargetModel, texts: list[list[int]]) -> None:
    log = Recorder()
    with running(tiny_engine(target, log=log, chunk=16)) as engine:
        short = submit_held(engine, "short", texts[0], 60)
        long = submit(engine, "long", prompts(1, 150)[0], greedy(3))
        short.let_go.set()
        long.wait()
        short.wait()
    assert len(log.prefill) > 8
    assert all(event.new_tokens <= 16 for event in log.prefill)
    assert any(event.running == 1 and event.pending_tokens > 0 for event in log.prefill)


def test_aborting_frees_the_slot_and_the_memory(target: TargetModel, texts: list[list[int]]) -> None:
    with running(tiny_engine(target, tiny_drafter(target), tiny_settings(Algorithm.DDTREE), max_running=1)) as engine:
        first = submit_held(engine, "a", texts[0], 200)
        second = submit(engine, "b", texts[1], greedy(4))
        assert engine.stats().draft_kv_bytes > 0
        assert engine.abort("a")
        first.let_go.set()
        assert first.wait().last.finish is not None
        assert first.last.finish is not None
        assert first.last.finish.type == "abort"
        assert len(second.wait().ids) == 4
        stats = engine.stats()
        assert (stats.running, stats.aborted_total, stats.used_tokens) == (0, 1, 0)
        assert (stats.draft_kv_bytes, stats.target_kv_bytes) == (0, 0)
        assert not engine.abort("a")


def test_aborting_a_queued_request_never_runs_it(target: TargetModel, texts: list[list[int]]) -> None:
    with running(tiny_engine(target, max_running=1)) as engine:
        first = submit_held(engine, "a", texts[0], 200)
        queued = submit(engine, "b", texts[1], greedy(4))
        assert engine.abort("b")
        assert engine.abort("a")
        first.let_go.set()
        assert queued.wait().ids == []


def test_an_engine_lives_until_it_is_closed(target: TargetModel) -> None:
    engine = tiny_engine(target)
    assert engine.alive
    engine.close()
    assert not engine.alive


def test_closing_ends_every_request(target: TargetModel, texts: list[list[int]]) -> None:
    engine = tiny_engine(target, max_running=1)
    first = submit_held(engine, "0", texts[0], 200)
    answers = [first, *(submit(engine, str(i), text, greedy(200)) for i, text in enumerate(texts[1:], start=1))]

    def submit_more() -> None:
        while True:
            answers.append(submit(engine, f"late {len(answers)}", texts[0], greedy(200)))
            time.sleep(0.001)

    closing = threading.Thread(target=engine.close)
    closing.start()
    with pytest.raises(EngineError, match="shutting down"):
        submit_more()
    first.let_go.set()
    closing.join()
    finishes = [answer.wait().last.finish for answer in answers]
    assert {finish.type for finish in finishes if finish is not None} == {"abort"}
    assert None not in finishes


def test_more_requests_than_slots_wait_their_turn(target: TargetModel) -> None:
    with running(tiny_engine(target, max_running=2)) as engine:
        answers = [submit(engine, str(i), text, greedy(30)) for i, text in enumerate(prompts(5, 8))]
        most = 0
        while not all(answer.done.is_set() for answer in answers):
            most = max(most, engine.stats().running)
            time.sleep(0.001)
        assert most <= 2
        assert engine.stats().requests_total == 5
        assert answers[4].last.stats.queue_time > 0


def test_a_listener_that_fails_ends_only_its_own_request(target: TargetModel, texts: list[list[int]]) -> None:
    def broken(event: TokenEvent) -> None:
        raise RuntimeError("the client is gone")

    with running(tiny_engine(target)) as engine:
        engine.submit(GenerateRequest("a", tuple(texts[0]), greedy(200)), broken)
        assert len(submit(engine, "b", texts[1], greedy(5)).wait().ids) == 5


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (GenerateRequest("a", (), SamplingParams()), "empty"),
        (GenerateRequest("a", (1, 24), SamplingParams()), "outside of the vocabulary"),
        (GenerateRequest("a", (1,), SamplingParams(max_new_tokens=0)), "at least 1"),
        (GenerateRequest("a", (1,), SamplingParams(stop=("x",))), "tokenizer"),
        (GenerateRequest("a", (1,), SamplingParams(), RequestOverrides(speculative=True)), "without a drafter"),
        (GenerateRequest("a", (1,), SamplingParams(), RequestOverrides(ddtree_budget=4)), "does not run DDTREE"),
    ],
)
def test_a_request_that_cannot_run_is_refused_at_once(target: TargetModel, request_: GenerateRequest, why: str) -> None:
    with running(tiny_engine(target)) as engine, pytest.raises(EngineError, match=why):
        engine.submit(request_, Answer())


def test_an_error_in_the_loop_tells_the_clients_and_later_callers(target: TargetModel, texts: list[list[int]]) -> None:
    class Broken(OracleDrafter):
        def draft(self, queries: object) -> torch.Tensor:
            raise RuntimeError("no drafts today")

    log = Recorder()
    drafter = Broken(tiny_drafter(target), texts)
    with running(tiny_engine(target, drafter, tiny_settings(Algorithm.DFLASH), log=log)) as engine:
        answer = submit(engine, "a", texts[0], greedy(5)).wait()
        assert answer.last.finish is not None
        assert answer.last.finish.type == "abort"
        with pytest.raises(EngineUnavailable, match="no drafts today"):
            submit(engine, "b", texts[0], greedy(5))
        assert not engine.alive
    (failure,) = log.failures
    assert [frame.name for frame in traceback.extract_tb(failure.__traceback__)][-1] == "draft"


def test_decode_lines_come_every_so_many_rounds_also_over_several_short_answers(
    target: TargetModel, texts: list[list[int]]
) -> None:
    log = Recorder()
    awake = 0.0
    with running(tiny_engine(target, log=log, interval=4)) as engine:
        for index in range(4):
            begun = time.perf_counter()
            submit(engine, str(index), texts[0], greedy(4)).wait()
            awake += time.perf_counter() - begun
            time.sleep(0.3)
    # Four answers of three rounds each make three intervals; the pauses between them do not count as decoding, however slowly
    # a busy machine decodes.
    assert len(log.decode) == 3
    assert sum(4 / event.gen_throughput for event in log.decode) < awake + 0.3
    assert all(event.accept_length is None for event in log.decode)


def test_listeners_are_called_without_the_engines_lock(target: TargetModel, texts: list[list[int]]) -> None:
    with running(tiny_engine(target)) as engine:
        seen: list[int] = []

        def ask_from_another_thread(event: TokenEvent) -> None:
            asking = threading.Thread(target=lambda: seen.append(engine.stats().running))
            asking.start()
            asking.join(5)

        answer = Answer()

        def listen(event: TokenEvent) -> None:
            ask_from_another_thread(event)
            answer(event)

        engine.submit(GenerateRequest("a", tuple(texts[0]), greedy(100)), listen)
        while not seen:
            time.sleep(0.001)
        engine.abort("a")
        answer.wait()
        assert len(seen) == len(answer.events)
