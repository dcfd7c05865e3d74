"""Replay of recorded answers: its trees are the served ones, and its rounds are those of a running engine, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_launch import tree as ddtree
from engine_launch.embedded.api import Algorithm
from engine_launch.embedded.target import TargetModel
from engine_launch.spec.drafter_config import LayerType
from engine_launch.training.dataset import Record, Sequences, to_sequences
from engine_launch.training.drafter import Drafter, DrafterShape
from engine_launch.training.engine_answers import EngineAnswers
from engine_launch.training.replay import CommitCounts, Windows, draft_everywhere, replay, replay_trees, tree_commit_length
from engine_launch.training.target import END_OF_TEXT, IM_END, Target, TargetForward, TargetLayer, TargetShape
from engine_launch.training.tree_order import nodes_needed
from tests.engine.models import (
    MASK_TOKEN,
    drafter_config,
    drafter_weights,
    greedy,
    plain_answers,
    prompts,
    submit,
    target_weights,
    tiny_drafter,
    tiny_engine,
    tiny_settings,
    tiny_target,
)

WINDOW = 16
ANSWER = 60


@st.composite
def proposals(draw: st.DrawFn) -> tuple[list[list[float]], list[int]]:
    """Log-probabilities of a few slots, many of them equal, and the text's place in each (one beyond: not among them)."""
    width = draw(st.integers(1, 4))
    slot = st.lists(st.integers(-6, 0).map(lambda x: x / 4), min_size=width, max_size=width)
    rows = [sorted(row, reverse=True) for row in draw(st.lists(slot, min_size=1, max_size=4))]
    return rows, [draw(st.integers(0, width)) for _ in rows]


@given(proposals(), st.integers(1, 70))
@settings(max_examples=150, deadline=None)
def test_the_order_of_nodes_is_that_of_the_trees_that_are_served(
    proposal: tuple[list[list[float]], list[int]], most: int
) -> None:
    logprobs, ranks = proposal
    needed = nodes_needed(torch.tensor([logprobs]), torch.tensor([ranks]), most)[0]
    ids = [[10 * slot + rank for rank in range(len(row))] for slot, row in enumerate(logprobs)]
    text = [10 * slot + rank for slot, rank in enumerate(ranks)]
    for budget in {1, most // 2, most} - {0}:
        assert int((needed <= budget).sum()) == held(ddtree.build(ids, logprobs, budget), text)


def held(tree: ddtree.Tree, text: Sequence[int]) -> int:
    """Drafts of the tree that are accepted when the target writes ``text``."""
    path, _ = ddtree.walk(tree, lambda node: [*text, -1][0 if node == 0 else tree.depths[node - 1]])
    return len(path) - 1


def training_target(model: TargetModel) -> Target:
    """The tiny engine's target as training has it."""
    c, w = model.config, target_weights(model.config, torch.float64)
    shape = TargetShape(
        c.num_hidden_layers, c.hidden_size, c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.intermediate_size,
        c.vocab_size, c.rope_theta, c.rms_norm_eps,
    )  # fmt: skip
    names = ("attn_norm", "qkv", "o", "mlp_norm", "gate_up", "down")
    layers = tuple(TargetLayer(*(w[f"layers.{i}.{name}"] for name in names)) for i in range(shape.layers))
    return Target(shape, w["embed"], layers, w["norm"])


def training_drafter() -> Drafter:
    """The tiny engine's drafter as training has it."""
    c = drafter_config()
    shape = DrafterShape(
        hidden=c.hidden_size, heads=c.num_attention_heads, kv_heads=c.num_key_value_heads, head_dim=c.head_dim,
        ffn=c.intermediate_size, vocab=c.vocab_size, rope_theta=c.rope_theta, rms_eps=c.rms_norm_eps, block=c.block_size,
        mask_token=MASK_TOKEN, window=WINDOW, sliding=tuple(t is LayerType.SLIDING for t in c.layer_types),
        taps=c.target_layer_ids or (), target_layers=3,
    )  # fmt: skip
    drafter = Drafter(shape).double()
    drafter.load_state_dict(drafter_weights(c, torch.float64))
    return drafter


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(("layers", "compact"), [(WINDOW, None), (WINDOW, 40), (WINDOW, 8), (None, None), (None, 16), (None, 5)])
@pytest.mark.parametrize("budget", [None, 6, 16])
def test_the_rounds_are_those_of_a_running_engine(
    temperature: float, layers: int | None, compact: int | None, budget: int | None
) -> None:
    model = tiny_target()
    algorithm = Algorithm.DFLASH if budget is None else Algorithm.DDTREE
    drafter = tiny_drafter(model, layers_window=layers or 0)
    engine = tiny_engine(model, drafter, tiny_settings(algorithm, budget or 8, 4, compact or 0), prefix_cache_bytes=0)
    twin, forward = training_drafter(), TargetForward(training_target(model), (0, 2), 256)
    real: list[tuple[int, int]] = []
    found: list[tuple[int, int]] = []
    try:
        for number, prompt in enumerate(prompts(3, 30)):
            sampling = replace(greedy(ANSWER, ignore_eos=True), temperature=temperature, seed=number)
            answer = submit(engine, str(number), prompt, sampling, record_rounds=True).wait()
            records = [event.round for event in answer.events if event.round is not None]
            length = len(prompt) + len(answer.ids)
            real += [(r.start, len(r.path) - 1) for r in records if r.start + twin.shape.block <= length]
            sequences = to_sequences([Record((*prompt, *answer.ids), len(prompt), 0, temperature)])
            drafts = draft_everywhere(twin, forward, sequences, 4, Windows(layers, compact))
            found += drafts.walk(drafts.of_chain() if budget is None else drafts.of_trees((budget,), 4)[budget])
    finally:
        engine.close()
    assert found == real
    assert sum(accepted for _, accepted in real) > 0


def answered(count: int, tokens: int) -> Sequences:
    model = tiny_target()
    texts = prompts(count, 30)
    answers = plain_answers(model, texts, tokens)
    return to_sequences([Record((*p, *a), len(p), 0, 0.0) for p, a in zip(texts, answers, strict=True)])


def test_bounds_that_are_never_reached_change_nothing_and_are_dropped() -> None:
    sequences, drafter, forward = answered(2, 20), training_drafter(), TargetForward(training_target(tiny_target()), (0, 2), 256)
    longest = int(sequences.lengths.max())
    assert Windows(longest, longest + 5).within(longest) == Windows(None, None)
    assert Windows(longest - 1, 7).within(longest) == Windows(longest - 1, 7)
    near, far = (draft_everywhere(drafter, forward, sequences, 4, w) for w in (Windows(longest, longest), Windows(None, None)))
    assert torch.equal(near.ranks, far.ranks)
    assert torch.allclose(near.logprobs, far.logprobs)


def test_a_tree_of_one_candidate_a_slot_is_the_chain_and_more_nodes_commit_no_less() -> None:
    sequences, drafter, forward = answered(4, 40), training_drafter(), TargetForward(training_target(tiny_target()), (0, 2), 256)
    chain = replay(drafter, forward, sequences)
    assert replay_trees(drafter, forward, sequences, (3, 64), 1) == {3: chain, 64: chain}
    lengths = [tree_commit_length(drafter, forward, sequences, budget, 4) for budget in (3, 8, 64)]
    assert chain.commit_length < lengths[0] < lengths[1] < lengths[2]


def test_trees_of_more_candidates_than_were_kept_are_refused() -> None:
    drafts = draft_everywhere(training_drafter(), TargetForward(training_target(tiny_target()), (0, 2), 256), answered(1, 12), 2)
    with pytest.raises(ValueError, match="top-k 3 cannot be replayed from 2 candidates"):
        drafts.of_trees((4,), 3)


def test_answers_shorter_than_a_block_give_no_round() -> None:
    drafter, forward = training_drafter(), TargetForward(training_target(tiny_target()), (0, 2), 256)
    short, long = Record((5, 6, 7, 8), 2, 0, 0.0), Record((5, 6, 7, 8, 9, 10), 2, 0, 0.0)
    assert replay(drafter, forward, to_sequences([short, long])).rounds == 1
    assert tree_commit_length(drafter, forward, to_sequences([short])) == 0


def test_the_share_by_slot_counts_the_rounds_that_came_so_far() -> None:
    result = CommitCounts((2, 1, 0, 1))
    assert result.by_slot == (0.5, 0.25, 0.25)
    assert result.commit_length == 1 + sum(result.by_slot)


def test_answers_from_the_engine_are_plain_decodings_up_to_the_end_token() -> None:
    model, texts = tiny_target(), prompts(4, 12)
    with EngineAnswers(tiny_engine(model, tiny_drafter(model), tiny_settings(Algorithm.DDTREE))) as engine:
        records = engine.answer(texts, 40, 0.0)
        sampled = [engine.answer(texts[:1], 40, 1.0)[0].tokens for _ in range(2)]
    ended = 0
    for record, text, answer in zip(records, texts, plain_answers(model, texts, 40), strict=True):
        end = next((i + 1 for i, token in enumerate(answer) if token in (IM_END, END_OF_TEXT)), 40)
        assert record.tokens == (*text, *answer[:end])
        assert record.answer_start == len(text)
        ended += end < 40
    assert ended > 0
    assert sampled[0] != sampled[1]
