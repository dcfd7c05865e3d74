"""Generation, training and replay, end to end on a random target small enough for a CPU."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from engine_launch.training import dataset
from engine_launch.training.dataset import BatchStream, Record, Sequences, leaking, to_sequences
from engine_launch.training.decode import DISCARDED, DONE, Seed, SlotDecoder
from engine_launch.training.drafter import DraftCache, Drafter, DrafterShape
from engine_launch.training.generate import SeedSource, answer_all, generate
from engine_launch.training.heldout import without_template
from engine_launch.training.loss import head_cross_entropy
from engine_launch.training.prompts import Kind, Opening
from engine_launch.training.replay import replay
from engine_launch.training.target import END_OF_TEXT, IM_END, Target, TargetForward, TargetShape, random_target
from engine_launch.training.train import Recipe, Trainer

SHAPE = TargetShape(layers=4, hidden=48, heads=3, kv_heads=1, head_dim=16, ffn=64, vocab=256, rope_theta=1e4, rms_eps=1e-5)
DRAFTER = DrafterShape(
    hidden=48, heads=3, kv_heads=1, head_dim=16, ffn=64, vocab=256, block=4, window=16, sliding=(True, False),
    taps=(0, 2), target_layers=4,
)  # fmt: skip


SUFFIX = (198, 1, 199, 200, 198)
"""As long as the real one, within this vocabulary."""


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
    forward, ids = TargetForward(target, (0,), 128), list(prompt)
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


def test_chunked_loss_has_the_gradient_of_plain_cross_entropy() -> None:
    torch.manual_seed(0)
    hidden, head = torch.randn(10, 6, requires_grad=True), torch.randn(30, 6)
    labels, weights = torch.randint(0, 30, (10,)), torch.rand(10)
    loss, correct = head_cross_entropy(hidden, head, labels, weights)
    loss.backward()  # type: ignore[no-untyped-call]
    made = hidden.grad
    twin = hidden.detach().clone().requires_grad_()
    plain = (F.cross_entropy(twin @ head.t(), labels, reduction="none") * weights).sum()
    plain.backward()  # type: ignore[no-untyped-call]
    assert made is not None
    assert twin.grad is not None
    assert torch.allclose(loss, plain)
    assert torch.allclose(made, twin.grad, atol=1e-6)
    assert torch.equal(correct, (twin @ head.t()).argmax(-1) == labels)


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
