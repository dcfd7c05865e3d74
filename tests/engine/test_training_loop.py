"""Generation, training and replay, end to end on a random target small enough for a CPU."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from engine_launch.training import dataset, decode, prefill, train
from engine_launch.training.dataset import Batch, BatchStream, Record, Sequences, leaking, to_sequences
from engine_launch.training.decode import DISCARDED, DONE, Seed, SlotDecoder
from engine_launch.training.drafter import DraftCache, Drafter, DrafterShape
from engine_launch.training.generate import SeedSource, answer_all, generate
from engine_launch.training.heldout import answer_turns, without_template
from engine_launch.training.long_seeds import LongSource
from engine_launch.training.loss import head_loss
from engine_launch.training.prompts import Kind, Opening
from engine_launch.training.replay import by_context, replay, rounds
from engine_launch.training.target import END_OF_TEXT, IM_END, IM_START, Target, TargetForward, TargetShape, random_target
from engine_launch.training.train import Recipe, Trainer
from engine_launch.training.turns import answer_mask, split_at_answers

SHAPE = TargetShape(layers=4, hidden=48, heads=3, kv_heads=1, head_dim=16, ffn=64, vocab=256, rope_theta=1e4, rms_eps=1e-5)
DRAFTER = DrafterShape(
    hidden=48, heads=3, kv_heads=1, head_dim=16, ffn=64, vocab=256, block=4, window=16, sliding=(True, False),
    taps=(0, 2), target_layers=4,
)  # fmt: skip


SUFFIX = (198, 1, 199, 200, 198)
BREAK = (IM_END, 198, IM_START, 201, 198)
"""Both as long as the real ones, within this vocabulary."""


@pytest.fixture(scope="module")
def target() -> Target:
    return random_target(SHAPE, scale=0.15)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Tensors this small gain nothing from threads, and lose much on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def prompts(count: int) -> list[tuple[int, ...]]:
    rng = random.Random(4)
    return [tuple(rng.randrange(20, 200) for _ in range(rng.randrange(3, 9))) for _ in range(count)]


@pytest.fixture(scope="module")
def answers(target: Target) -> Sequences:
    decoder = SlotDecoder(target, 12, 64, SUFFIX)
    torch.manual_seed(0)
    return to_sequences(answer_all(decoder, prompts(12), 40))


def greedy(target: Target, prompt: tuple[int, ...], count: int) -> tuple[int, ...]:
    forward, ids = TargetForward(target, (0,), 1024), list(prompt)
    for _ in range(count):
        ids.append(int(forward.logits(torch.tensor([ids]))[0, -1].argmax()))
    return tuple(ids)


def test_slots_decode_greedily_like_a_whole_forward(target: Target, answers: Sequences) -> None:
    for i, prompt in enumerate(prompts(12)):
        first, n = answers.offsets[i], answers.lengths[i]
        assert tuple(answers.tokens[first : first + n].tolist()) == greedy(target, prompt, int(n) - len(prompt))
        assert answers.answer_starts[i] == len(prompt)


def test_an_open_turn_gets_the_assistant_header_when_it_ends_and_is_dropped_when_it_does_not(target: Target) -> None:
    decoder, given = SlotDecoder(target, 64, 128, SUFFIX), (5, 6, 7)
    torch.manual_seed(0)
    # So hot that every token is equally likely: some turns end, others run into the limit or into the end of text.
    decoder.load(list(range(64)), [Seed(given, True, 60, 1e3, 0.0, 8, Kind.CHAT)] * 64)
    decoder.run(80)
    ended = 0
    for slot in range(64):
        row = tuple(decoder.tokens[slot, : int(decoder.pos[slot]) + 1].tolist())
        turn = row[: next((i for i, token in enumerate(row) if token in (IM_END, END_OF_TEXT)), 60)]
        proper = len(turn) < 59 and row[len(turn)] == IM_END
        assert row[:3] == given
        assert int(decoder.phase[slot]) == (DONE if proper else DISCARDED)
        if proper:
            ended += 1
            assert row[len(turn) + 1 : len(turn) + 1 + len(SUFFIX)] == SUFFIX
            assert int(decoder.answer_start[slot]) == len(turn) + 1 + len(SUFFIX)
    assert 0 < ended < 64


def test_a_conversation_goes_on_with_turns_of_the_target_and_every_answer_is_its_own(target: Target) -> None:
    decoder, given = SlotDecoder(target, 16, 900, SUFFIX, turn_break=BREAK), prompts(1)[0]
    torch.manual_seed(0)
    decoder.load(list(range(16)), [Seed(given, False, 0, 1e3, 0.0, 12, Kind.CONVERSATION, turns=2)] * 16)
    decoder.run(420)
    opened = []
    for slot in range(16):
        row = tuple(decoder.tokens[slot, : int(decoder.pos[slot]) + 1].tolist())
        assert int(decoder.phase[slot]) == DONE
        assert int(decoder.first_answer[slot]) == len(given)
        first_end = row.index(IM_END, len(given))
        assert row[: first_end + 1] == (*greedy(target, given, first_end - len(given)), IM_END)
        assert row[first_end : first_end + len(BREAK)] == BREAK
        later = [i for i in range(len(row)) if row[i : i + len(SUFFIX)] == SUFFIX]
        opened.append(len(later))
        for i in later:
            start = i + len(SUFFIX)
            end = next((j for j in range(start, len(row)) if row[j] == IM_END), len(row))
            assert row[start:end] == greedy(target, row[:start], end - start)[start:]
            assert end - start <= 12
    assert set(opened) == {0, 1, 2}


def test_an_answer_that_ends_by_itself_is_ended_once(target: Target) -> None:
    decoder, given = SlotDecoder(target, 24, 900, SUFFIX, turn_break=BREAK), prompts(1)[0]
    torch.manual_seed(0)
    decoder.load(list(range(24)), [Seed(given, False, 0, 1e3, 1e3, 400, Kind.CONVERSATION, turns=1)] * 24)
    decoder.run(420)
    early = 0
    for row in decoder.tokens.tolist():
        end = next(i for i in range(len(given), len(row)) if row[i] in (IM_END, END_OF_TEXT))
        if row[end] == IM_END:
            assert tuple(row[end : end + len(BREAK)]) == BREAK
            early += end < len(given) + 400
    assert early > 5


def test_a_long_given_text_read_in_one_pass_goes_on_as_if_read_step_by_step(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [tuple(random.Random(i).choices(range(20, 200), k=n)) for i, n in enumerate((50, 61, 9, 70))]
    plain = answer_all(SlotDecoder(target, 4, 128, SUFFIX), given, 20)
    monkeypatch.setattr(decode, "PREFILL_FROM", 20)
    monkeypatch.setattr(prefill, "TOKENS_PER_PASS", 130)
    used = SlotDecoder(target, 4, 128, SUFFIX)
    answer_all(used, prompts(4), 30)
    assert answer_all(used, given, 20) == plain


def test_only_the_assistant_s_turns_count_as_answers() -> None:
    header, user = (IM_START, 520, 9531, 198), (IM_START, 4093, 198)
    given = (*user, 30, IM_END, 198, *header)
    first, between, second = (40, 41, IM_END), (198, *user, 31, 32, IM_END, 198, *header), (42, 43, IM_END)
    ids = torch.tensor([[*given, *first, *between, *second, 198, *user, 33, 0, 0]])
    n = ids.shape[1] - 2
    mask = answer_mask(ids, torch.tensor([len(given)]), torch.tensor([n]))[0].tolist()
    assert mask == [False] * len(given) + [True] * 3 + [False] * len(between) + [True] * 3 + [False] * 7
    assert split_at_answers(tuple(ids[0].tolist())) == [given, (*first, *between)]


@pytest.mark.parametrize("block", [4, 16])
def test_an_answer_s_end_is_the_last_label_of_its_blocks(target: Target, block: int) -> None:
    # The longer block reaches over the user's turn into the next answer.
    header = (IM_START, 520, 9531, 198)
    tokens = (5, *header, 40, 41, 42, IM_END, 198, IM_START, 4093 % 256, 198, 31, IM_END, 198, *header, 43, 44, 45, 46, IM_END)
    stream = BatchStream(to_sequences([Record(tokens, 5, 0, 0.0)]), torch.device("cpu"))
    batch = stream.gather(torch.tensor([0]), 64, 16)
    torch.manual_seed(2)
    trainer = Trainer(Drafter(replace(DRAFTER, block=block)), TargetForward(target, DRAFTER.taps, 64), Recipe())
    seen: list[torch.Tensor] = []

    def spy(
        hidden: torch.Tensor, head: torch.Tensor, labels: torch.Tensor, usable: torch.Tensor, *others: Any
    ) -> tuple[torch.Tensor, ...]:
        seen.extend((labels, usable))
        return head_loss(hidden, head, labels, usable, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "head_loss", spy)
        trainer.loss(Batch(batch.ids % 256, *(getattr(batch, f) for f in ("anchors", "valid", "lengths", "answers"))))
    labels, usable = seen
    used = [labels[i][usable[i]].tolist() for i in range(16) if bool(usable[i].any())]
    answers = ((40, 41, 42, IM_END), (43, 44, 45, 46, IM_END))
    assert used == [list(answer[i + 1 : i + block]) for answer in answers for i in range(len(answer) - 1)]
    assert stream.answer_tokens() == 9


def test_long_seeds_are_conversations_library_files_and_the_targets_own_texts() -> None:
    pool = [Opening(Kind.CHAT, (5, 6), True), Opening(Kind.DOCUMENT, (7,) * 1300, False)]
    texts = [Record((*range(20, 24), *[40 + i] * 90, IM_END), 4, Kind.CHAT, 0.0) for i in range(9)]
    source = LongSource(Words(), pool, texts, (0.0,), random.Random(0))  # type: ignore[arg-type]
    seeds = [source.next() for _ in range(60)]
    assert {s.kind for s in seeds} == {Kind.CONVERSATION, Kind.DOCUMENT}
    talks = [s for s in seeds if s.kind is Kind.CONVERSATION]
    documents = [s for s in seeds if s.kind is Kind.DOCUMENT]
    assert all(s.open_turn and s.turns > 10 for s in talks)
    assert sum(s.given == (7,) * 1300 for s in documents) == 1
    for seed in documents:
        assert not seed.open_turn
        assert 1200 <= len(seed.given) <= 5400
        assert IM_END not in seed.given


class Words:
    """Stands in for the tokenizer: one token a character, so that lengths are plain."""

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(200 + len(text) % 7 for _ in range(min(len(text), 9)))


def test_generation_refills_slots_and_keeps_only_real_answers(target: Target) -> None:
    pool = [Opening(Kind.RAW, (20, 21, 22), False)] + [Opening(Kind.FUNCTION, p, False) for p in prompts(50)]
    torch.manual_seed(1)
    decoder = SlotDecoder(target, 4, 256, SUFFIX)
    rounds = iter(range(12))
    records = generate(decoder, SeedSource(pool, random.Random(0), 30), lambda: next(rounds, None) is not None)
    assert len(records) > decoder.slots
    assert all(24 <= r.answer_tokens <= 60 for r in records)


def test_a_sequence_that_shares_thirteen_tokens_with_a_held_out_prompt_is_found() -> None:
    secret = tuple(range(100, 113))
    sequences = to_sequences(
        [Record((1, 2, 3, *secret, 4), 3, 0, 0.0), Record((1, 2, 3, *secret[:-1], 4), 3, 0, 0.0), Record(secret, 3, 0, 0.0)]
    )
    assert leaking(sequences, [(9, *secret, 9)]).tolist() == [True, False, True]


def test_the_chat_template_is_no_part_of_a_held_out_prompt() -> None:
    system, header, text = (1, 9690, 198, 2683, 2, 198), (1, 4093, 198), (30, 31, 32)
    assert without_template((*system, *header, *text, 2, 198, 1, 520, 9531, 198)) == text
    assert without_template(text) == text


def test_anchors_lie_in_the_answer_with_a_token_after_them(answers: Sequences) -> None:
    batch = BatchStream(answers, torch.device("cpu")).gather(torch.arange(12), 64, 32)
    starts = torch.from_numpy(answers.answer_starts)[:, None]
    inside = (batch.anchors >= starts) & (batch.anchors < batch.lengths[:, None] - 1)
    assert bool(inside[batch.valid].all())
    assert batch.valid.sum(-1).tolist() == [min(32, n) for n in (batch.lengths - starts[:, 0] - 1).tolist()]


def loop_commit_length(drafter: Drafter, forward: TargetForward, answers: Sequences) -> float:
    """A decode loop as an engine does it: draft on the cache, verify with the target, append what was committed."""
    committed = rounds = 0
    for first, length, start in zip(answers.offsets, answers.lengths, answers.answer_starts, strict=True):
        ids = answers.tokens[first : first + length].tolist()[: int(start) + 1]
        cache = DraftCache(drafter)
        while len(ids) - 1 + drafter.shape.block <= length:
            cache.append(forward.features(torch.tensor([ids]))[:, cache.length : len(ids) - 1])
            block = torch.tensor([[ids[-1]] + [drafter.shape.mask_token] * (drafter.shape.block - 1)])
            hidden = cache.draft(F.embedding(block, forward.target.embedding))[0, 1:]
            drafts = (hidden @ forward.target.embedding.t()).argmax(-1).tolist()
            verified = forward.logits(torch.tensor([ids + drafts]))[0, len(ids) - 1 :].argmax(-1).tolist()
            accepted = 0
            while accepted < len(drafts) and drafts[accepted] == verified[accepted]:
                accepted += 1
            ids += verified[: accepted + 1]
            committed, rounds = committed + accepted + 1, rounds + 1
    return committed / rounds


def test_training_raises_the_commit_length_and_replay_tells_it_like_a_real_loop(
    target: Target, answers: Sequences, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset, "BUCKETS", ((64, 6),))
    monkeypatch.setattr(dataset, "ANCHOR_SPACING", 4)
    torch.manual_seed(2)
    forward = TargetForward(target, DRAFTER.taps, 1024)
    trainer = Trainer(Drafter(DRAFTER), forward, Recipe(learning_rate=5e-3, warmup_steps=5))
    stream = BatchStream(answers, torch.device("cpu"))
    trainer.measure_features(stream.next())
    before = replay(trainer.drafter, forward, answers).commit_length
    for i in range(50):
        trainer.step(stream.next(), i / 50)
    after = replay(trainer.drafter, forward, answers)
    few = answers.keep(np.arange(len(answers.lengths)) < 4)
    assert before < 1.5
    assert after.commit_length > before + 0.5
    real = loop_commit_length(trainer.drafter, forward, few)
    assert replay(trainer.drafter, forward, few).commit_length == pytest.approx(real, abs=0.02)


def test_rounds_told_apart_by_context_add_up_to_the_whole(target: Target, answers: Sequences) -> None:
    torch.manual_seed(3)
    drafter, forward = Drafter(DRAFTER), TargetForward(target, DRAFTER.taps, 1024)
    found = list(rounds(drafter, forward, answers))
    parts = by_context(drafter, found, (12, 20))
    assert [sum(p.rounds for p in parts)] == [replay(drafter, forward, answers).rounds]
    assert [p.rounds for p in parts] == [
        sum(at < 12 for at, _ in found), sum(12 <= at < 20 for at, _ in found), sum(at >= 20 for at, _ in found)
    ]  # fmt: skip
    assert min(p.rounds for p in parts) > 0


def test_every_turn_of_a_transcript_is_answered_on_the_answers_before_it(target: Target) -> None:
    first, second = prompts(2)
    later = (*BREAK, *second)
    records = answer_turns(SlotDecoder(target, 2, 900, SUFFIX), [[first, later], [second]])
    assert [r.answer_start for r in records[:2]] == [len(first), len(second)]
    answer = records[0].tokens[len(first) :]
    history = (*first, *(answer[:-1] if answer[-1] == IM_END else answer), *later)
    assert records[2].tokens[: records[2].answer_start] == history
    assert records[2].tokens == greedy(target, history, records[2].answer_tokens)


def test_the_end_of_an_earlier_answer_stands_once_in_the_next_prompt(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    def reply(decoder: SlotDecoder, asked: list[tuple[int, ...]], limit: int, temperature: float) -> list[Record]:
        endings = ((50, IM_END), (51,))
        return [Record((*p, *endings[i % 2]), len(p), 0, 0.0) for i, p in enumerate(asked)]

    monkeypatch.setattr("engine_launch.training.generate.answer_all", reply)
    records = answer_turns(SlotDecoder(target, 2, 16, SUFFIX), [[(30,), (*BREAK, 31)], [(32,), (*BREAK, 33)]])
    assert [r.tokens[: r.answer_start] for r in records[2:]] == [(30, 50, *BREAK, 31), (32, 51, *BREAK, 33)]


def test_training_goes_on_from_a_trained_drafter_as_it_was_exported(target: Target, answers: Sequences, tmp_path: Path) -> None:
    torch.manual_seed(4)
    forward = TargetForward(target, DRAFTER.taps, 1024)
    stream = BatchStream(answers, torch.device("cpu"))
    batch = stream.gather(torch.arange(12), 64, 8)
    trained = Trainer(Drafter(DRAFTER), forward, Recipe())
    trained.measure_features(batch)
    trained.drafter.export(tmp_path)
    again = Trainer(Drafter(DRAFTER), forward, Recipe())
    again.measure_features(batch)
    again.start_from(Drafter.load(tmp_path))
    features = forward.features(batch.ids)
    assert torch.allclose(again.drafter.context(features), trained.drafter.context(features), atol=0.05)
    assert torch.allclose(again.drafter.fc.weight, trained.drafter.fc.weight, atol=1e-3)
    assert again.drafter.feature_scale.std() > 0.1
