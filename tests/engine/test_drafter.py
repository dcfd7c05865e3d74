"""The drafter as it is served: the same function as in training, whatever the caches keep and who shares the pass."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine_launch.embedded.api import EngineError
from engine_launch.embedded.draft_kv import DraftKV
from engine_launch.embedded.drafter import ContextRows, DFlashDrafter, DraftQuery, block_visibility
from engine_launch.embedded.drafter_loader import load_drafter
from engine_launch.embedded.factory import DrafterPlan
from engine_launch.embedded.target import TargetModel
from engine_launch.spec.drafter_config import load_drafter_config
from engine_launch.training.drafter import Drafter as TrainedDrafter
from engine_launch.training.drafter import DrafterShape
from engine_launch.training.masks import dense_mask
from tests.engine.models import BLOCK, MASK_TOKEN, drafter_config, drafter_weights, tiny_drafter, tiny_target

ANCHOR = 5


def features(count: int, dtype: torch.dtype = torch.float64, seed: int = 2) -> Tensor:
    return torch.randn(count, 2 * 24, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@torch.inference_mode()
def drafted(drafter: DFlashDrafter, rows: Tensor, cuts: Sequence[int] = (), draft_window: int = 0) -> Tensor:
    """Logits ``[b - 1, V]`` after feeding ``rows`` in pieces of the given sizes (one piece when none are given)."""
    kv = drafter.new_kv(draft_window)
    for part in rows.split(list(cuts) or len(rows)):  # type: ignore[no-untyped-call]
        drafter.append([ContextRows(kv, part)])
    return drafter.draft([DraftQuery(kv, ANCHOR)])[0]


def plan_for(folder: Path, taps: tuple[int, ...] = (0, 2)) -> DrafterPlan:
    config = load_drafter_config(folder)
    return DrafterPlan(folder, config, taps, MASK_TOKEN, config.block_size, config.sliding_window or 0)


@pytest.fixture
def trained(tmp_path: Path) -> tuple[TrainedDrafter, TargetModel, Path]:
    """A training-side drafter with random weights, exported as a checkpoint that fits the tiny target."""
    shape = DrafterShape(
        hidden=24, heads=4, kv_heads=2, head_dim=6, ffn=32, vocab=24, block=BLOCK, mask_token=MASK_TOKEN, window=11,
        sliding=(True, True, False), taps=(0, 2), target_layers=3,
    )  # fmt: skip
    torch.manual_seed(4)
    drafter = TrainedDrafter(shape)
    for parameter in drafter.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    drafter.export(tmp_path)
    return TrainedDrafter.load(tmp_path), tiny_target(torch.float32), tmp_path


@pytest.mark.parametrize("context", [1, 7, 10, 11, 12, 40])
def test_serving_computes_what_training_computes(trained: tuple[TrainedDrafter, TargetModel, Path], context: int) -> None:
    theirs, target, folder = trained
    ours = load_drafter(plan_for(folder), target, 200)
    rows = features(context, torch.float32)
    with torch.inference_mode():
        ids = torch.tensor([ANCHOR] + [MASK_TOKEN] * (BLOCK - 1))
        hidden = theirs.blocks(target.embedding(ids)[None, None], rows[None], torch.tensor([[context]]))
        expected = target.logits(hidden[0, 0, 1:])
    assert (drafted(ours, rows) - expected).abs().max() < 1e-4
    assert expected.std() > 0.1


@pytest.mark.parametrize("window", [None, 11])
@pytest.mark.parametrize("context", [3, 30])
def test_block_masks_are_those_of_training(window: int | None, context: int) -> None:
    ours = block_visibility(torch.arange(context), context, BLOCK, window or 0, causal=window is not None)
    theirs = dense_mask(torch.tensor([[context]]), context, BLOCK, window)[0, 0]
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("kinds", ["fff", "sss", "ssf"])
@pytest.mark.parametrize("cuts", [(1, 39), (3, 20, 17), (39, 1), (5,) * 8])
def test_feeding_the_context_in_pieces_changes_nothing(kinds: str, cuts: tuple[int, ...]) -> None:
    drafter = tiny_drafter(tiny_target(), drafter_config(kinds, window=11))
    rows = features(40)
    assert (drafted(drafter, rows, cuts) - drafted(drafter, rows)).abs().max() < 1e-10


@pytest.mark.parametrize("kinds", ["sss", "ssf"])
def test_a_compact_cache_as_large_as_the_layers_window_is_exact_only_without_full_layers(kinds: str) -> None:
    drafter = tiny_drafter(tiny_target(), drafter_config(kinds, window=11))
    rows = features(40)
    exact, at_window, smaller = drafted(drafter, rows), drafted(drafter, rows, (), 10), drafted(drafter, rows, (), 9)
    if kinds == "sss":
        assert torch.equal(at_window, exact)
    else:
        assert (at_window - exact).abs().max() > 1e-4
    assert (smaller - exact).abs().max() > 1e-4


def test_the_compact_cache_is_the_same_as_never_having_seen_older_context() -> None:
    """Up to the absolute positions, which stay: the reference is a cache whose older rows are masked away."""
    drafter = tiny_drafter(tiny_target(), drafter_config("ff"))
    rows = features(40)
    compact = drafted(drafter, rows, (13, 27), 12)
    kv = drafter.new_kv(0)
    with torch.inference_mode():
        drafter.append([ContextRows(kv, rows)])
        for store in kv.stores:
            store.rows[:, :, :, :12] = store.rows[:, :, :, 28:40].clone()
            store.first = 28
        expected = drafter.draft([DraftQuery(kv, ANCHOR)])[0]
    assert (compact - expected).abs().max() < 1e-10


def test_switching_the_layers_window_off_lets_sliding_layers_see_everything() -> None:
    target = tiny_target()
    config = drafter_config("ss", window=11)
    on, off = tiny_drafter(target, config), tiny_drafter(target, config, layers_window=0)
    short, long = features(4), features(40)
    assert (drafted(on, short) - drafted(off, short)).abs().max() < 1e-10
    assert (drafted(on, long) - drafted(off, long)).abs().max() > 1e-4


def test_requests_in_one_pass_get_what_they_get_alone() -> None:
    drafter = tiny_drafter(tiny_target(), drafter_config("ssf", window=11))
    contexts = [features(30, seed=1), features(3, seed=2), features(14, seed=3)]
    windows = [0, 8, 12]
    caches = [drafter.new_kv(window) for window in windows]
    with torch.inference_mode():
        drafter.append([ContextRows(kv, rows) for kv, rows in zip(caches, contexts, strict=True)])
        together = drafter.draft([DraftQuery(kv, ANCHOR) for kv in caches])
    for row, rows, window in zip(together, contexts, windows, strict=True):
        assert (row - drafted(drafter, rows, (), window)).abs().max() < 1e-10


def test_a_block_leaves_no_trace_in_the_cache() -> None:
    drafter = tiny_drafter(tiny_target(), drafter_config("ssf", window=11))
    kv = drafter.new_kv(0)
    rows = features(40)
    with torch.inference_mode():
        drafter.append([ContextRows(kv, rows[:20])])
        first = drafter.draft([DraftQuery(kv, ANCHOR)])
        again = drafter.draft([DraftQuery(kv, ANCHOR)])
        drafter.append([ContextRows(kv, rows[20:])])
        later = drafter.draft([DraftQuery(kv, ANCHOR)])[0]
    assert torch.equal(first, again)
    assert (later - drafted(drafter, rows)).abs().max() < 1e-10


@pytest.mark.parametrize("row", [0, 25, 39])
def test_one_wrong_feature_row_shows_in_the_drafts(row: int) -> None:
    drafter = tiny_drafter(tiny_target(), drafter_config("ssf", window=16))
    rows = features(40)
    spoilt = rows.clone()
    spoilt[row] = features(1, seed=9)[0]
    assert (drafted(drafter, rows) - drafted(drafter, spoilt)).abs().max() > 1e-5


def test_the_anchor_token_matters_to_every_slot() -> None:
    drafter = tiny_drafter(tiny_target())
    kv = drafter.new_kv(0)
    with torch.inference_mode():
        drafter.append([ContextRows(kv, features(10))])
        a, b = (drafter.draft([DraftQuery(kv, anchor)])[0] for anchor in (5, 6))
    assert ((a - b).abs().amax(dim=1) > 1e-5).all()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    config = drafter_config()
    save_file(drafter_weights(config, torch.bfloat16), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(
        json.dumps(
            {
                "architectures": ["DFlashDraftModel"],
                "hidden_size": 24,
                "intermediate_size": 32,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "head_dim": 6,
                "vocab_size": 24,
                "num_hidden_layers": 3,
                "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
                "sliding_window": 16,
                "use_sliding_window": True,
                "block_size": BLOCK,
                "dflash_config": {"mask_token_id": MASK_TOKEN, "target_layer_ids": [0, 2]},
            }
        )
    )
    return tmp_path


def test_a_checkpoint_loads_in_the_targets_dtype(checkpoint: Path) -> None:
    drafter = load_drafter(plan_for(checkpoint), tiny_target(torch.float32), 100)
    assert drafter.dtype is torch.float32
    assert drafter.weight_bytes == sum(4 * tensor.numel() for tensor in load_file(checkpoint / "model.safetensors").values())


def test_a_missing_tensor_is_named(checkpoint: Path) -> None:
    weights = load_file(checkpoint / "model.safetensors")
    del weights["layers.1.self_attn.q_norm.weight"]
    save_file(weights, checkpoint / "model.safetensors")
    with pytest.raises(EngineError, match=r"lack the tensor layers\.1\.self_attn\.q_norm\.weight"):
        load_drafter(plan_for(checkpoint), tiny_target(), 100)


def test_a_tensor_whose_values_are_no_numbers_is_named(checkpoint: Path) -> None:
    weights = load_file(checkpoint / "model.safetensors")
    weights["norm.weight"][3] = torch.inf
    save_file(weights, checkpoint / "model.safetensors")
    with pytest.raises(EngineError, match=r"norm\.weight in .* holds values that are no numbers"):
        load_drafter(plan_for(checkpoint), tiny_target(), 100)


def test_a_tensor_of_another_shape_is_named_with_both_shapes(checkpoint: Path) -> None:
    weights = load_file(checkpoint / "model.safetensors")
    weights["fc.weight"] = torch.zeros(24, 24)
    save_file(weights, checkpoint / "model.safetensors")
    with pytest.raises(EngineError, match=r"fc\.weight has shape \[24, 24\], its config\.json says \[24, 48\]"):
        load_drafter(plan_for(checkpoint), tiny_target(), 100)


def test_a_truncated_file_is_one_sentence(checkpoint: Path) -> None:
    path = checkpoint / "model.safetensors"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(EngineError, match=r"cannot be read") as caught:
        load_drafter(plan_for(checkpoint), tiny_target(), 100)
    assert "\n" not in str(caught.value)


def test_draft_caches_belong_to_one_request_each() -> None:
    drafter = tiny_drafter(tiny_target())
    first, second = drafter.new_kv(0), drafter.new_kv(0)
    assert isinstance(first, DraftKV)
    with torch.inference_mode():
        drafter.append([ContextRows(first, features(10))])
    assert (first.length, second.length) == (10, 0)
