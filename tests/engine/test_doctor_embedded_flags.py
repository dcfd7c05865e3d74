"""The doctor on flags for the embedded engine: it says of them what ``serve`` would say, and nothing of SGLang's rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine_launch.commands import doctor
from engine_launch.doctor.check import Check, Status
from engine_launch.doctor.embedded_flags import check_embedded_flags
from engine_launch.spec.checks import EngineKind
from engine_launch.spec.sglang_checks import read_flags
from tests.engine.checkpoints import write_drafter


def judged(*words: str) -> dict[str, Check]:
    return {check.name: check for check in check_embedded_flags(words)}


def test_flags_that_it_serves_are_no_failure() -> None:
    found = judged("--speculative-algorithm", "DDTREE", "--speculative-ddtree-budget", "auto")
    assert list(found) == ["flags"]
    assert found["flags"].status is Status.OK
    assert "needs" not in found["flags"].message


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--speculative-ddtree-budget 0", "must be at least 1"),
        ("--speculative-algorithm EAGLE", "is not one that the embedded engine has"),
        ("stray", "belongs to no flag"),
        ("--speculative-algorithm DDTREE --speculative-ddtree-budget 300", "the tree budget is 300; 1 to 256 nodes"),
        ("--speculative-algorithm DFLASH --speculative-num-draft-tokens 500", "the block size is 500; 2"),
        ("--context-length 1", "context-length is 1; at least 2 tokens are needed"),
        ("--config f.yaml", "which the embedded engine does not read"),
        ("--speculative-algorithm DFLASH --speculative-dflash-block-size 8 --speculative-draft-window-size 4", "below the block"),
    ],
)
def test_what_it_would_refuse_fails(words: str, said: str) -> None:
    flags = judged(*words.split())["flags"]
    assert flags.status is Status.FAIL
    assert said in flags.message


def test_what_it_passes_over_is_a_warning() -> None:
    flags = judged("--tp-size", "2")["flags"]
    assert flags.status is Status.WARN
    assert "--tp-size is a flag of SGLang" in flags.message


def test_its_files_are_looked_at(tmp_path: Path) -> None:
    gone = judged("--model-path", str(tmp_path / "gone.gguf"))
    assert gone["flags target"].status is Status.FAIL
    model = tmp_path / "model.gguf"
    model.write_bytes(b"PK")
    assert judged("--model-path", str(model))["flags target"] == Check(
        "flags target", Status.FAIL, f"{model} is not a GGUF file (it begins with b'PK')."
    )
    model.write_bytes(b"GGUF")
    assert judged("--model-path", str(model))["flags target"].status is Status.OK
    drafted = ["--speculative-algorithm", "DDTREE", "--speculative-draft-model-path"]
    assert judged(*drafted, str(tmp_path / "gone"))["flags drafter"].status is Status.FAIL
    folder = str(write_drafter(tmp_path / "drafter"))
    assert judged(*drafted, folder)["flags drafter"].status is Status.OK
    small = judged(*drafted, folder, "--speculative-draft-window-size", "4")["flags drafter"]
    assert small.status is Status.FAIL
    assert "below the block size 8" in small.message
    other = judged(*drafted, str(write_drafter(tmp_path / "other", hidden_size=1024)))["flags drafter"]
    assert other.status is Status.FAIL
    assert judged(*drafted, str(tmp_path / "other"), "--model-path", str(model))["flags drafter"].status is Status.OK


@pytest.mark.parametrize(
    ("kind", "sglang", "own_rules"),
    [
        (EngineKind.EMBEDDED, True, True),
        (EngineKind.AUTO, False, True),
        (EngineKind.AUTO, True, False),
        (EngineKind.SGLANG, True, False),
    ],
)
def test_whose_rules_hold_is_a_matter_of_the_engine(
    monkeypatch: pytest.MonkeyPatch, kind: EngineKind, sglang: bool, own_rules: bool
) -> None:
    for module in ("serve", "doctor"):
        monkeypatch.setattr(f"engine_launch.commands.{module}.has_sglang", lambda: sglang)
        monkeypatch.setattr(f"engine_launch.commands.{module}.has_gpu", lambda: False)
    monkeypatch.setattr("engine_launch.commands.doctor.check_gpu_host", lambda flags: [])
    words = ["--speculative-algorithm", "DDTREE"]
    found = {one.name: one for one in doctor.examine(read_flags(words), kind, "127.0.0.1", 0, words)}
    assert (found["flags"].status is Status.OK) is own_rules
    assert ("page size" in found) is not own_rules


def test_the_packaged_model_and_drafter_are_not_spoken_of_where_others_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DDTREE_CACHE_DIR", str(tmp_path / "cache"))
    model, drafter = tmp_path / "model.gguf", write_drafter(tmp_path / "drafter")
    model.write_bytes(b"GGUF")

    def rows(*words: str) -> set[str]:
        found = doctor.examine(read_flags(words), EngineKind.EMBEDDED, "127.0.0.1", 0, words)
        return {one.name for one in found} & {"model", "drafter", "flags target", "flags drafter"}

    assert rows() == {"model", "drafter"}
    assert rows("--model-path", str(model)) == {"flags target", "drafter"}
    assert rows("--model-path", str(tmp_path / "gone.gguf")) == {"flags target", "drafter"}
    tree = ["--speculative-algorithm", "DDTREE", "--speculative-draft-model-path", str(drafter)]
    assert rows(*tree) == {"model", "flags drafter"}
    packaged = tmp_path / "cache" / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    packaged.parent.mkdir(parents=True)
    packaged.write_bytes(b"GGUF")
    assert rows("--model-path", "smollm2-135m-instruct") == {"model", "flags target", "drafter"}
