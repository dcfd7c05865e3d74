"""The doctor on the flags of a start: drafter, target, window, page size, and the draft pools foretold from them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from engine_launch.doctor.check import Status
from engine_launch.doctor.draft_pool import check_draft_pool, read_start
from engine_launch.doctor.gpu_host import check_flags
from engine_launch.spec.sglang_checks import read_flags
from tests.engine.checkpoints import flags_for, write_drafter


def verdicts(words: list[str]) -> dict[str, tuple[Status, str]]:
    return {check.name: (check.status, check.message) for check in check_flags(read_flags(words))}


def test_a_drafter_that_fits_is_said_with_its_window_and_layers(tmp_path: Path) -> None:
    found = verdicts(flags_for(tmp_path, "--page-size", "1"))
    assert {status for status, _ in found.values()} == {Status.OK}
    assert found["flags drafter"][1] == "fits target: 1 of 2 layers sliding, 512, block 8, mask token 16, layers 1, 15, 27"


def test_a_drafter_for_another_target_fails(tmp_path: Path) -> None:
    status, message = verdicts(flags_for(tmp_path, num_hidden_layers=24))["flags drafter"]
    assert status is Status.FAIL
    assert "num_target_layers is 30, but target has 24 layers" in message


def test_a_drafter_whose_weights_are_not_there_fails(tmp_path: Path) -> None:
    words = flags_for(tmp_path)
    weights = Path(words[3], "model.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1])
    status, message = verdicts(words)["flags drafter"]
    assert status is Status.FAIL
    assert "is cut short" in message
    weights.unlink()
    assert "holds no weights" in verdicts(words)["flags drafter"][1]
    assert verdicts([*words, "--speculative-draft-load-format", "dummy"])["flags drafter"][0] is Status.OK


def test_a_drafter_whose_weights_are_of_other_shapes_than_its_configuration_says_fails(tmp_path: Path) -> None:
    words = flags_for(tmp_path)
    write_drafter(Path(words[3]), intermediate_size=1024)
    status, message = verdicts(words)["flags drafter"]
    assert status is Status.FAIL
    assert "has shape [1536, 576], but the configuration says [1024, 576]" in message


def test_the_language_model_inside_a_larger_one_is_what_counts(tmp_path: Path) -> None:
    inner = {"hidden_size": 576, "num_hidden_layers": 30, "vocab_size": 49152}
    found = verdicts(flags_for(tmp_path, hidden_size=1, text_config=inner))
    assert found["flags drafter"][0] is Status.OK


def test_a_model_on_a_hub_is_not_guessed_about(tmp_path: Path) -> None:
    words = f"--model-path org/model --speculative-draft-model-path {write_drafter(tmp_path)} --speculative-algorithm DFLASH"
    assert verdicts(words.split())["flags drafter"][0] is Status.WARN


@pytest.mark.parametrize(
    ("content", "status", "said"),
    [
        (None, Status.FAIL, "cannot be read: No such file or directory."),
        (b"\xff\xfe", Status.FAIL, "is not UTF-8 text, and so no YAML."),
        (b" \n", Status.WARN, "the file is empty."),
        (b"tp-size: 8\n", Status.OK, "SGLang takes more flags from it, which are not looked at here"),
    ],
)
def test_sglangs_own_file_of_flags_is_known_and_looked_for(
    tmp_path: Path, content: bytes | None, status: Status, said: str
) -> None:
    file = tmp_path / "flags.yaml"
    if content is not None:
        file.write_bytes(content)
    found = verdicts([*flags_for(tmp_path, "--page-size", "1"), "--config", str(file)])
    assert found["flags config"][0] is status
    assert found["flags config"][1].endswith(said)
    assert "flags unknown" not in found


@pytest.mark.parametrize("value", ["", "folder"])
def test_a_file_of_flags_that_cannot_be_one_fails(tmp_path: Path, value: str) -> None:
    found = verdicts(["--config", *([str(tmp_path)] if value else [])])
    assert found["flags config"][0] is Status.FAIL


def test_a_path_that_leads_nowhere_fails_and_a_name_on_a_hub_does_not(tmp_path: Path) -> None:
    gone, empty = tmp_path / "gone", tmp_path / "empty"
    empty.mkdir()
    words = ["--model-path", str(gone), "--speculative-draft-model-path", str(empty), "--tokenizer-path", "org/model"]
    found = verdicts(words)
    assert found["flags target"] == (
        Status.FAIL,
        f"--model-path {gone}: there is no such folder on this machine. A model on a hub is named ORG/NAME.",
    )
    assert found["flags drafter"][0] is Status.FAIL
    assert "no config.json" in found["flags drafter"][1]
    assert "flags tokenizer" not in found
    assert "flags target" not in verdicts(["--model-path", "org/model"])


def test_a_model_in_one_file_is_no_folder_without_a_configuration(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.touch()
    assert "flags target" not in verdicts(["--model-path", str(file)])


def test_flags_that_nobody_knows_are_named_with_what_may_be_meant(tmp_path: Path) -> None:
    status, message = verdicts(["--model-path", "org/model", "--tp-sise", "2", "--nonsense", "3"])["flags unknown"]
    assert status is Status.WARN
    assert "--tp-sise is not a flag" in message
    assert "Did you mean --tp-size?" in message
    assert "--nonsense is not a flag" in message
    for known in ("--tp", "--tensor-parallel-size", "--speculative-ddtree-budget", "--mem-fraction"):
        assert "flags unknown" not in verdicts(["--model-path", "org/model", known, "2"])


SMOLLM2 = {
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "torch_dtype": "bfloat16",
}


def foretold(tmp_path: Path, *more: str, free: float | None = 140e9, **changes: object) -> tuple[Status, str]:
    check = check_draft_pool(read_flags(flags_for(tmp_path, *more, **{**SMOLLM2, **changes})), free)
    assert check is not None
    return check.status, check.message


def test_both_draft_pools_are_foretold_where_sglangs_share_is_given(tmp_path: Path) -> None:
    flags = ["--mem-fraction-static", "0.3", "--speculative-draft-window-size", "512", "--max-running-requests", "32"]
    status, stock = foretold(tmp_path / "a", *flags)
    assert status is Status.OK
    assert stock.startswith("stock, 2.4")
    assert "--speculative-ddtree-draft-pool ring would take 0.024 GB" in stock
    status, ring = foretold(tmp_path / "b", *flags, "--speculative-ddtree-draft-pool", "ring")
    assert status is Status.OK
    tokens = re.search(r"for ([\d,]+) tokens; stock would .* hold ([\d,]+)", ring)
    assert tokens, ring
    own, other = (int(number.replace(",", "")) for number in tokens.groups())
    assert own / other == pytest.approx(32 / 30, rel=0.01)


def test_a_ring_that_is_larger_than_the_stock_pool_is_a_warning(tmp_path: Path) -> None:
    flags = ["--mem-fraction-static", "0.3", "--max-total-tokens", "20000", "--speculative-ddtree-draft-pool", "ring"]
    status, message = foretold(tmp_path, *flags, "--speculative-draft-window-size", "2048")
    assert status is Status.WARN
    assert "the ring is the larger one" in message


def test_without_a_share_or_a_known_card_only_sizes_are_foretold(tmp_path: Path) -> None:
    window = ("--speculative-draft-window-size", "512")
    unknown = (
        ("a", window, 140e9, "Give --mem-fraction-static"),
        ("b", (*window, "--mem-fraction-static", "0.3"), None, "memory is not"),
    )
    for name, flags, free, missing in unknown:
        _, message = foretold(tmp_path / name, *flags, free=free)
        assert missing in message
        assert "0.143 GB for every 100,000 tokens" in message
        assert "a ring of 512 tokens for 48 requests 0.036 GB" in message


def test_latent_attention_and_several_ranks_are_counted(tmp_path: Path) -> None:
    latent = {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
    start = read_start(read_flags(flags_for(tmp_path, "--tp-size", "8", **{**SMOLLM2, **latent})))
    assert start is not None
    assert (start.target.row_bytes, start.draft.row_bytes) == (30 * 576 * 2, 2 * 1 * 128 * 2)


@pytest.mark.parametrize("share", ["half", "0", "9", "-1", "nan", "inf"])
def test_a_share_of_memory_is_between_nothing_and_all(tmp_path: Path, share: str) -> None:
    assert foretold(tmp_path / "all", "--mem-fraction-static=1")[0] is Status.OK
    status, message = foretold(tmp_path, f"--mem-fraction-static={share}")
    assert status is Status.FAIL
    assert f"a share between 0 and 1, not '{share}'" in message


@pytest.mark.parametrize(
    "config",
    [
        [],
        "text",
        {},
        {**SMOLLM2, "text_config": [1]},
        {**SMOLLM2, "num_attention_heads": 0},
        {**SMOLLM2, "num_hidden_layers": "30"},
    ],
    ids=["list", "text", "empty", "part is a list", "no heads", "layers are a word"],
)
def test_nothing_is_foretold_of_a_target_whose_configuration_is_none(tmp_path: Path, config: object) -> None:
    flags = flags_for(tmp_path, "--mem-fraction-static", "0.3", **SMOLLM2)
    Path(flags[1], "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert check_draft_pool(read_flags(flags), 140e9) is None
    assert "flags drafter" in verdicts(flags)


def test_counts_below_one_are_not_counted_with(tmp_path: Path) -> None:
    words = [f"{name}=-4" for name in ("--tp-size", "--max-total-tokens", "--max-running-requests")]
    start = read_start(read_flags(flags_for(tmp_path, *words, "--speculative-draft-window-size=0", **SMOLLM2)))
    assert start == read_start(read_flags(flags_for(tmp_path / "b", **SMOLLM2)))


def test_models_on_a_hub_and_plain_decoding_have_no_draft_pool_to_foretell(tmp_path: Path) -> None:
    assert check_draft_pool(read_flags(["--model-path", "org/model", "--speculative-algorithm", "DDTREE"]), 1e9) is None
    assert check_draft_pool(read_flags(flags_for(tmp_path)[:4]), 1e9) is None


def test_page_sizes(tmp_path: Path) -> None:
    assert verdicts(flags_for(tmp_path))["page size"][0] is Status.WARN
    assert verdicts(["--page-size", "64"])["page size"][0] is Status.OK
    assert verdicts(["--page-size", "64", "--speculative-algorithm", "DDTREE"])["page size"][0] is Status.FAIL


def test_a_window_below_the_drafters_block_is_seen(tmp_path: Path) -> None:
    status, message = verdicts(flags_for(tmp_path, "--speculative-draft-window-size", "4"))["flags"]
    assert status is Status.FAIL
    assert "block size 8" in message
