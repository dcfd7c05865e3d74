"""The trainer's drafter: training's forward and an engine's incremental forward are the same function."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine_launch.training.drafter import DraftCache, Drafter, DrafterShape
from engine_launch.training.masks import dense_mask, flex_mask

LAYER_MIXES = {"full": (False, False), "sliding": (True, True), "mixed": (True, False)}


def small(sliding: tuple[bool, ...], window: int = 11) -> DrafterShape:
    return DrafterShape(
        hidden=24, heads=3, kv_heads=1, head_dim=8, ffn=32, vocab=64, block=4, mask_token=3, window=window,
        sliding=sliding, taps=(1, 2), target_layers=6,
    )  # fmt: skip


def random_drafter(shape: DrafterShape) -> Drafter:
    torch.manual_seed(3)
    drafter = Drafter(shape).double()
    for p in drafter.parameters():
        torch.nn.init.normal_(p, std=0.3)
    drafter.feature_scale.uniform_(0.5, 2.0)
    return drafter


def inputs(shape: DrafterShape, anchors: list[int], context: int) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(5)
    embedded = torch.randn(1, len(anchors), shape.block, shape.hidden, generator=g, dtype=torch.float64)
    features = torch.randn(1, context, len(shape.taps) * shape.hidden, generator=g, dtype=torch.float64)
    return embedded, features, torch.tensor([anchors])


def incremental(drafter: Drafter, embedded: Tensor, features: Tensor, anchors: list[int]) -> Tensor:
    cache, rows = DraftCache(drafter), []
    for i, anchor in enumerate(anchors):
        cache.append(features[:, cache.length : anchor])
        rows.append(cache.draft(embedded[:, i]))
    return torch.stack(rows, dim=1)


@pytest.mark.parametrize("mix", LAYER_MIXES)
def test_training_forward_equals_incremental_forward(mix: str) -> None:
    drafter = random_drafter(small(LAYER_MIXES[mix]))
    anchors = [1, 4, 5, 12, 30, 37]
    embedded, features, at = inputs(drafter.shape, anchors, 40)
    with torch.no_grad():
        whole = drafter.blocks(embedded, features, at)
    assert (whole - incremental(drafter, embedded, features, anchors)).abs().max() < 1e-10


def test_the_window_matters_only_once_the_context_is_longer() -> None:
    near = random_drafter(small((True, True), window=11))
    far = random_drafter(small((True, True), window=100))
    embedded, features, at = inputs(near.shape, [5, 30], 40)
    with torch.no_grad():
        gap = (near.blocks(embedded, features, at) - far.blocks(embedded, features, at)).abs().amax(dim=(0, 2, 3))
    assert gap[0] < 1e-12
    assert gap[1] > 1e-3


def test_a_context_feature_at_or_after_the_anchor_changes_nothing() -> None:
    drafter = random_drafter(small((True, False)))
    embedded, features, at = inputs(drafter.shape, [12], 20)
    changed = features.clone()
    changed[:, 12:] += 1.0
    with torch.no_grad():
        assert torch.equal(drafter.blocks(embedded, features, at), drafter.blocks(embedded, changed, at))
        changed[:, 11] += 1.0
        assert not torch.allclose(drafter.blocks(embedded, features, at), drafter.blocks(embedded, changed, at))


def test_later_slots_reach_earlier_ones_in_full_layers_only() -> None:
    for sliding in (True, False):
        drafter = random_drafter(small((sliding, sliding)))
        embedded, features, at = inputs(drafter.shape, [8], 20)
        changed = embedded.clone()
        changed[:, :, 3] += 1.0
        with torch.no_grad():
            gap = (drafter.blocks(embedded, features, at) - drafter.blocks(changed, features, at)).abs()[0, 0].amax(-1)
        assert bool(gap[1] < 1e-12) is sliding


def test_a_window_of_eleven_is_ten_positions_before_the_query_and_the_query_itself() -> None:
    mask = dense_mask(torch.tensor([[20]]), 30, 4, 11)[0, 0]
    seen = [mask[slot, :30].nonzero().flatten().tolist() for slot in range(4)]
    assert seen == [list(range(first, 20)) for first in (10, 11, 12, 13)]
    assert mask[:, 30:].tolist() == [[key <= slot for key in range(4)] for slot in range(4)]


@pytest.mark.parametrize("window", [None, 11])
def test_flex_mask_holds_the_same_pairs_as_the_dense_mask(window: int | None) -> None:
    anchors = torch.tensor([[3, 9, 40, 55], [1, 2, 3, 60]])
    dense = dense_mask(anchors, 64, 4, window)
    flex = flex_mask(anchors, 64, 4, window, compiled=False)
    q, kv = torch.meshgrid(torch.arange(16), torch.arange(80), indexing="ij")
    for row in range(2):
        seen = flex.mask_mod(torch.tensor(row), torch.tensor(0), q, kv)
        assert torch.equal(seen, dense[row, 0])


def test_a_checkpoint_comes_back_with_the_feature_scale_folded_in(tmp_path: Path) -> None:
    drafter = random_drafter(small((True, False))).float()
    drafter.export(tmp_path)
    again = Drafter.load(tmp_path, torch.float64)
    assert again.shape == drafter.shape
    folded = drafter.fc.weight * drafter.feature_scale
    assert torch.equal(again.fc.weight, folded.to(torch.bfloat16).double())
