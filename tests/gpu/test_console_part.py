"""The console part, with the embedded engine in the place of SGLang: every step of it is taken, and each finds what it must."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from engine_launch.embedded.model_files import default_model_path
from engine_launch.embedded.options import PACKAGED_DRAFTER
from tests.gpu.context import Context
from tests.gpu.parts import console
from tests.gpu.records import Verdict
from tests.ports import free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not default_model_path().is_file(), reason="the model is not here: ddtree-launch model get"),
]
TAKEN_HOT_HERE = "console: a hot change of stock DFLASH"
"""The embedded engine's DFLASH takes it, and stock SGLang's does not."""


def commands(_: Path) -> Mapping[str, Sequence[str]]:
    engine = [sys.executable, "-m", "engine_launch", "serve", "--engine", "embedded", "--dtype", "bfloat16", "--enable-metrics"]
    drafter = ["--speculative-draft-model-path", str(PACKAGED_DRAFTER), "--speculative-algorithm"]
    tree = ["DDTREE", "--speculative-ddtree-budget", "16", "--speculative-ddtree-topk", "4"]
    return {
        console.TREE_UNIT: [*engine, "--port", str(free_port()), *drafter, *tree],
        console.CHAIN_UNIT: [*engine, "--port", str(free_port()), *drafter, "DFLASH"],
    }


def test_every_step_finds_what_it_must(tmp_path: Path) -> None:
    found = console.run(Context(tmp_path, {}), commands)
    missed = [check for check in found.checks if check.verdict is not Verdict.MET and check.name != TAKEN_HOT_HERE]
    assert missed == []
    assert len(found.checks) == 17
    said = found.data[console.TREE_UNIT]
    assert isinstance(said, list)
    assert [step["command"].split()[4] for step in said][:4] == ["start", "status", "drift", "prompt"]
    # Nothing goes on running.
    assert said[-1]["command"].endswith("stop --yes")
    assert said[-1]["exit"] == 0


def test_prompts_are_tried_by_themselves(tmp_path: Path) -> None:
    found = console.prompts(Context(tmp_path, {}), commands)
    assert [check.verdict for check in found.checks] == [Verdict.MET, Verdict.MET]
