"""What a drafter's configuration says of the settings."""

from __future__ import annotations

import json

from dflash_console.evidence.drafter import read_drafter, trained_reading
from dflash_console.evidence.reading import Known
from dflash_console.knobs import KNOBS, OFF

CONFIG = {
    "architectures": ["DFlashDraftModel"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 6,
    "vocab_size": 100,
    "dflash_config": {"block_size": 8},
    "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
    "sliding_window": 2048,
}


def test_a_drafter_with_sliding_layers_says_window_and_block() -> None:
    config, problem = read_drafter(json.dumps(CONFIG))
    assert problem == ""
    layers = trained_reading(config, KNOBS["layers_window"])
    assert (layers.value, layers.text) == (2048, "2048, 5 of 6")
    assert trained_reading(config, KNOBS["draft_window"]).value == 2048
    assert trained_reading(config, KNOBS["block_size"]).value == 8
    assert trained_reading(config, KNOBS["tree_budget"]).known is Known.ABSENT


def test_a_drafter_with_full_attention_has_no_window() -> None:
    config, _ = read_drafter(json.dumps({**CONFIG, "layer_types": ["full_attention"] * 6}))
    assert trained_reading(config, KNOBS["layers_window"]).value == OFF
    assert trained_reading(config, KNOBS["draft_window"]).known is Known.ABSENT


def test_a_broken_configuration_is_said_in_one_sentence_and_nothing_is_known() -> None:
    config, problem = read_drafter(b'{"architectures": ["LlamaForCausalLM"]}')
    assert config is None
    assert "LlamaForCausalLM" in problem
    assert trained_reading(config, KNOBS["block_size"]).known is Known.UNKNOWN
