"""What is wrong with start-up options or files is said in one sentence, before anything is loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from engine_launch.embedded.api import Algorithm, EngineError
from engine_launch.embedded.events import SilentLog
from engine_launch.embedded.factory import build_engine, check_options, cpu_has_fast_bf16, plan_drafter
from engine_launch.embedded.options import EngineOptions
from engine_launch.embedded.target_config import TargetConfig
from engine_launch.spec.drafter_config import parse_drafter_config

TARGET = TargetConfig(49152, 576, 1536, 30, 9, 3, 64, 100000.0, 1e-5, 8192)


def write_drafter(folder: Path, **changes: object) -> Path:
    data: dict[str, object] = {
        "architectures": ["DFlashDraftModel"],
        "hidden_size": 576,
        "intermediate_size": 1024,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "vocab_size": 49152,
        "num_hidden_layers": 2,
        "num_target_layers": 30,
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 512,
        "block_size": 8,
        "dflash_config": {"mask_token_id": 16, "target_layer_ids": [1, 20]},
    }
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(data | changes))
    (folder / "model.safetensors").write_bytes(b"")
    return folder


@pytest.fixture
def options(tmp_path: Path) -> EngineOptions:
    return EngineOptions(algorithm=Algorithm.DDTREE, draft_path=write_drafter(tmp_path / "drafter"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"draft_window": 7}, "compact draft cache is 7; 0 .off. or at least the block size of 8"),
        ({"draft_window": -1}, "compact draft cache is -1"),
        ({"tree_budget": 0}, "tree budget is 0"),
        ({"tree_topk": 0}, "top-k is 0"),
        ({"layers_window": 4}, "layers' window is 4"),
        ({"layers_window": 10**20}, "layers' window is 100000000000000000000"),
        ({"draft_window": 10**20}, "compact draft cache is 100000000000000000000"),
        ({"block_size": 1}, "block size is 1"),
        ({"block_size": 257}, "block size is 257"),
        ({"max_running_requests": 0}, "max-running-requests is 0"),
        ({"decode_log_interval": 0}, "decode-log-interval is 0"),
        ({"context_length": 1}, "context-length is 1"),
    ],
)
def test_values_out_of_bounds_are_refused(options: EngineOptions, changes: dict[str, object], message: str) -> None:
    with pytest.raises(EngineError, match=message):
        build_engine(replace(options, **changes), SilentLog())  # type: ignore[arg-type]


def test_a_window_of_the_block_size_is_the_smallest_that_goes(options: EngineOptions) -> None:
    assert check_options(replace(options, draft_window=8)) is not None


def test_a_missing_drafter_is_named(tmp_path: Path, options: EngineOptions) -> None:
    with pytest.raises(EngineError, match=r"nowhere/config\.json cannot be read"):
        check_options(replace(options, draft_path=tmp_path / "nowhere"))


def test_a_drafter_without_weights_is_named(options: EngineOptions) -> None:
    assert options.draft_path is not None
    (options.draft_path / "model.safetensors").unlink()
    with pytest.raises(EngineError, match=r"model\.safetensors do not exist"):
        check_options(options)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 1024}, "hidden_size is 1024, but the target's is 576"),
        ({"vocab_size": 1000}, "vocab_size is 1000"),
        ({"num_target_layers": 36}, "num_target_layers is 36, but the target has 30 layers"),
        (
            {"num_target_layers": None, "dflash_config": {"mask_token_id": 16, "target_layer_ids": [30]}},
            "target_layer_ids names layer 30",
        ),
        ({"dflash_config": {"target_layer_ids": [1]}}, "mask_token_id is missing"),
        ({"rope_scaling": {"type": "yarn"}}, "yarn RoPE scaling"),
        ({"architectures": ["DFlash2DraftModel"]}, "DFlash2DraftModel is not run"),
    ],
)
def test_a_drafter_of_another_target_is_refused(
    tmp_path: Path, options: EngineOptions, changes: dict[str, object], message: str
) -> None:
    folder = write_drafter(tmp_path / "other", **changes)
    config = parse_drafter_config((folder / "config.json").read_bytes())
    with pytest.raises(EngineError, match=message):
        plan_drafter(replace(options, draft_path=folder), config, TARGET)


@pytest.mark.parametrize(("window", "expected"), [("config", 512), ("off", 0), (1024, 1024)])
def test_the_layers_window_is_as_trained_off_or_given(options: EngineOptions, window: int, expected: int) -> None:
    asked = replace(options, layers_window=window)
    config = check_options(asked)
    assert config is not None
    assert plan_drafter(asked, config, TARGET).layers_window == expected


def test_a_missing_model_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDTREE_CACHE_DIR", str(tmp_path))
    with pytest.raises(EngineError, match="run `ddtree-launch model get`"):
        build_engine(EngineOptions(), SilentLog())


def test_checks_come_before_torch_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from engine_launch.embedded.api import Algorithm, EngineError\n"
        "from engine_launch.embedded.events import SilentLog\n"
        "from engine_launch.embedded.factory import build_engine\n"
        "from engine_launch.embedded.options import EngineOptions\n"
        "try:\n"
        "    build_engine(EngineOptions(algorithm=Algorithm.DDTREE, tree_budget=0), SilentLog())\n"
        "except EngineError:\n"
        "    sys.exit(1 if 'torch' in sys.modules else 0)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_bf16_is_chosen_where_the_cpu_is_fast_at_it() -> None:
    assert cpu_has_fast_bf16("processor: 0\nflags\t\t: fpu avx2 avx512_bf16\n")
    assert cpu_has_fast_bf16("flags : amx_bf16 amx_tile\n")
    assert not cpu_has_fast_bf16("flags\t\t: fpu avx2 avx512f\n")
    assert not cpu_has_fast_bf16("")
