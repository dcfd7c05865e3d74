"""What a round leaves behind: both caches hold exactly what decoding the same tokens one by one would have left."""

from __future__ import annotations

import pytest
import torch

from engine_launch.embedded.api import Algorithm, GenerateRequest
from engine_launch.embedded.draft_kv import DraftKV
from engine_launch.embedded.drafter import ContextRows
from engine_launch.embedded.request import RequestState
from engine_launch.embedded.rounds import Rounds
from engine_launch.embedded.sampling import Sampler
from engine_launch.embedded.target import Segment, TargetModel
from tests.engine.models import (
    OracleDrafter,
    drafter_config,
    greedy,
    plain_answers,
    prompts,
    tiny_drafter,
    tiny_settings,
    tiny_target,
)

TOKENS = 60


@pytest.fixture(scope="module")
def target() -> TargetModel:
    return tiny_target()


def reference_caches(target: TargetModel, text: list[int], draft_window: int) -> tuple[torch.Tensor, DraftKV]:
    """Target keys and draft cache after one causal pass over ``text``."""
    drafter = tiny_drafter(target, drafter_config("ssf", window=16))
    kv, draft = target.new_kv(len(text)), drafter.new_kv(draft_window)
    with torch.inference_mode():
        out = target.forward(torch.tensor(text), torch.arange(len(text)), [Segment(kv, len(text))], drafter.taps)
        assert out.features is not None
        drafter.append([ContextRows(draft, out.features)])
    return kv.keys, draft


@pytest.mark.parametrize("algorithm", [Algorithm.DFLASH, Algorithm.DDTREE])
@pytest.mark.parametrize("draft_window", [0, 12])
def test_after_every_round_both_caches_are_those_of_plain_decoding(
    target: TargetModel, algorithm: Algorithm, draft_window: int
) -> None:
    text = prompts(1, 25)[0]
    whole = [*text, *plain_answers(target, [text], TOKENS)[0]]
    drafter = OracleDrafter(tiny_drafter(target, drafter_config("ssf", window=16)), [whole], accuracy=0.95, decoys=0.5)
    settings = tiny_settings(algorithm, budget=12, draft_window=draft_window)
    request = GenerateRequest("a", tuple(text), greedy(TOKENS))
    state = RequestState(
        request, lambda event: None, sampler=Sampler(request.sampling, 0), stop_ids=frozenset(), detokenizer=None
    )
    state.kv, state.draft = target.new_kv(len(whole) + 16), drafter.new_kv(draft_window)
    rounds = Rounds(target, drafter)
    state.emit([rounds.prefill([state], [len(text)])[0][1]])
    paths = []
    while len(state.output_ids) < TOKENS - 8:
        result = rounds.decode([state], settings, 1)[0]
        state.emit(result.tokens)
        paths.append(result.path)
        committed = whole[: state.kv.length]
        keys, draft = reference_caches(target, committed, draft_window)
        assert (state.kv.keys[:, :, : len(committed)] - keys).abs().max() < 1e-9
        assert state.draft.length == draft.length == len(committed)
        for ours, theirs in zip(state.draft.stores, draft.stores, strict=True):
            assert ours.slot_positions().tolist() == theirs.slot_positions().tolist()
            difference = ours.rows[:, :, :, : ours.visible] - theirs.rows[:, :, :, : theirs.visible]
            assert difference.abs().max() < 1e-9
    if algorithm is Algorithm.DDTREE:
        # The interesting case did occur: accepted rows that are not the first rows of the pass.
        assert any(path != tuple(range(len(path))) for path in paths)
