"""Drafter configurations of every spelling are read, and whatever cannot be used is refused with one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_launch.spec.drafter_config import (
    DrafterConfig,
    DrafterConfigError,
    LayerType,
    default_target_layers,
    load_drafter_config,
    parse_drafter_config,
)


def kimi(**changes: object) -> dict[str, Any]:
    """A config as published for a large target, with changes; ``None`` removes a key."""
    data: dict[str, Any] = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "block_size": 8,
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "num_hidden_layers": 6,
        "num_target_layers": 61,
        "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
        "use_sliding_window": True,
        "sliding_window": 2048,
        "rms_norm_eps": 1e-5,
        "rope_theta": 50000.0,
        "rope_scaling": {"type": "yarn", "factor": 64.0},
        "vocab_size": 163840,
        "dflash_config": {"mask_token_id": 163838, "target_layer_ids": [1, 12, 24, 35, 47, 58]},
    }
    data |= changes
    return {key: value for key, value in data.items() if value is not None}


def parse(**changes: object) -> DrafterConfig:
    return parse_drafter_config(json.dumps(kimi(**changes)))


def test_a_published_config_is_read_whole() -> None:
    config = parse()
    assert (config.block_size, config.mask_token_id, config.target_layer_ids) == (8, 163838, (1, 12, 24, 35, 47, 58))
    assert config.window_text == "5 of 6 layers sliding, 2048"
    assert [config.causal_in_block(layer) for layer in range(6)] == [True] * 5 + [False]
    assert config.rope_scaling_type == "yarn"
    assert config.kv_bytes_per_token_and_layer(2) == 2 * 8 * 128 * 2


@pytest.mark.parametrize(
    "changes",
    [
        {"block_size": None, "dflash_config": {"block_size": 8, "mask_token_id": 163838}},
        {"block_size": 8.0},
    ],
)
def test_the_block_size_may_stand_in_either_place(changes: dict[str, object]) -> None:
    assert parse(**changes).block_size == 8


def test_without_a_block_size_sglangs_fallback_is_taken() -> None:
    assert parse(block_size=None).block_size == 16


@pytest.mark.parametrize(
    ("draft", "target", "expected"),
    [
        (5, 36, (1, 9, 17, 25, 33)),
        (5, 24, (1, 6, 11, 16, 21)),
        (5, 64, (1, 16, 31, 46, 61)),
        (6, 61, (1, 12, 24, 35, 47, 58)),
        (1, 30, (15,)),
    ],
)
def test_taps_that_are_not_listed_follow_the_formula(draft: int, target: int, expected: tuple[int, ...]) -> None:
    assert default_target_layers(draft, target) == expected


def test_a_config_without_taps_uses_the_formula() -> None:
    assert parse(dflash_config={"mask_token_id": 5}).target_layer_ids == (1, 12, 24, 35, 47, 58)
    assert parse(dflash_config={"mask_token_id": 5}, num_target_layers=None).target_layer_ids is None


def test_use_sliding_window_false_switches_the_window_off() -> None:
    config = parse(use_sliding_window=False)
    assert config.sliding_window is None
    assert config.window_text == "6 layers, all full attention"


def test_without_layer_types_every_layer_is_full() -> None:
    config = parse(layer_types=None)
    assert set(config.layer_types) == {LayerType.FULL}
    assert config.sliding_window is None


@pytest.mark.parametrize("value", [True, False])
def test_an_explicit_is_causal_rules_all_layers(value: bool) -> None:
    assert {parse(is_causal=value).causal_in_block(layer) for layer in range(6)} == {value}


def test_rope_settings_are_read_under_the_newer_key() -> None:
    config = parse(rope_theta=None, rope_scaling=None, rope_parameters={"rope_type": "default", "rope_theta": 1e7})
    assert (config.rope_theta, config.rope_scaling_type) == (1e7, None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, "not a DFlash drafter"),
        ({"architectures": None}, "does not name a model class"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"hidden_size": "big"}, "hidden_size is 'big'"),
        ({"hidden_size": True}, "hidden_size is True"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"num_hidden_layers": 10**12, "layer_types": None}, "num_hidden_layers is 1000000000000; at most 1024"),
        ({"head_dim": 1e308}, "head_dim is 1000000"),
        ({"block_size": 10**300}, "block_size is 1000000"),
        ({"block_size": 1}, "block_size is 1"),
        ({"layer_types": ["full_attention"]}, "layer_types lists 1 layers, num_hidden_layers says 6"),
        ({"layer_types": ["dense"] * 6}, "layer_types holds 'dense'"),
        ({"sliding_window": None}, "sliding_window is missing"),
        ({"sliding_window": -1}, "sliding_window is -1"),
        ({"dflash_config": {"mask_token_id": 163840}}, "mask_token_id 163840 is not below vocab_size 163840"),
        ({"dflash_config": {"mask_token_id": "x"}}, "mask_token_id is 'x'"),
        ({"dflash_config": {"target_layer_ids": [1, 61]}}, "names layer 61, but num_target_layers is 61"),
        ({"dflash_config": {"target_layer_ids": []}}, "target_layer_ids is not a list"),
        ({"dflash_config": {"target_layer_ids": [1, "2"]}}, "target_layer_ids holds '2'"),
        ({"dflash_config": []}, "dflash_config is not an object"),
        ({"num_key_value_heads": 7}, "not a multiple"),
        ({"head_dim": 3}, "head_dim 3 is odd"),
        ({"is_causal": "yes"}, "is_causal is 'yes'"),
        ({"rope_theta": -1}, "rope_theta is -1"),
    ],
)
def test_what_cannot_be_used_is_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(DrafterConfigError, match=message):
        parse(**changes)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"null", b"[" * 100_000])
def test_what_is_not_a_json_object_is_refused(content: bytes) -> None:
    with pytest.raises(DrafterConfigError):
        parse_drafter_config(content)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DrafterConfigError, match=r"config\.json cannot be read: No such file"):
        load_drafter_config(tmp_path)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(sorted([*kimi(), "is_causal", "rope_parameters", "mask_token"])), json_values, max_size=4))
def test_no_value_under_any_key_raises_anything_but_its_own_error(changes: dict[str, object]) -> None:
    try:
        config = parse(**changes)
    except DrafterConfigError:
        return
    assert config.num_layers == len(config.layer_types)
    assert config.window_text


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_its_own_error(content: bytes) -> None:
    with pytest.raises(DrafterConfigError):
        parse_drafter_config(content)
