"""``ddtree-launch serve --engine sglang`` says what is wrong at once, and otherwise becomes SGLang with the same flags."""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from engine_launch.commands import serve_sglang
from engine_launch.sglang_plugin.flags import add_arguments
from engine_launch.spec.flags import BY_SPELLING, FlagError
from engine_launch.spec.sglang_checks import block_given, check_sglang_flags, read_flags
from tests.engine.checkpoints import write_drafter
from tests.engine.gpu_hosts import GpuHost

DDTREE = ["--speculative-algorithm", "DDTREE", "--attention-backend", "triton", "--speculative-draft-model-path", "org/drafter"]


def serve(host: GpuHost, *argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "engine_launch", "serve", "--engine", "sglang", *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=host.environment(), check=False)


def refused(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 2, result
    assert "Traceback" not in result.stderr
    return result.stderr.splitlines()[-1]


def test_sglang_gets_the_flags_as_they_are(tmp_path: Path) -> None:
    argv = [*DDTREE, "--port", "0", "--speculative-ddtree-verify-widths", "9,17", "--flag-of-tomorrow", "a b"]
    result = serve(GpuHost(tmp_path), *argv)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "|".join(["started", *argv]) + "\n"
    assert result.stderr == ""


def test_without_the_plugin_ddtree_is_refused_and_all_else_is_not(tmp_path: Path) -> None:
    host = GpuHost(tmp_path, plugin="somebody.else:register")
    assert "In the environment that SGLang runs in: pip install ddtree-console" in refused(serve(host, *DDTREE, "--port", "0"))
    assert serve(host, "--model-path", "m", "--port", "0").stdout.startswith("started|")


@pytest.mark.parametrize("seen", ["device", "tool", "neither"])
def test_ddtree_where_no_gpu_is_to_be_seen_is_refused_before_a_minute_of_loading(
    seen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve_sglang, "GPU_DEVICES", ("/dev/null" if seen == "device" else str(tmp_path / "none"),))
    monkeypatch.setattr(serve_sglang, "GPU_TOOLS", ("sh" if seen == "tool" else "no-such-tool-of-this-machine",))
    monkeypatch.setattr(serve_sglang, "has_sglang", lambda: True)
    monkeypatch.setattr(serve_sglang, "_check_plugin", lambda flags: [])
    if seen == "neither":
        with pytest.raises(FlagError, match="no GPU is to be seen here"):
            serve_sglang.check([*DDTREE, "--port", "0"])
    else:
        assert serve_sglang.check([*DDTREE, "--port", "0"]) == ()
    assert serve_sglang.check(["--model-path", "org/target", "--port", "0"]) == (), "SGLang runs other algorithms elsewhere too"


def test_a_plugin_kept_out_by_the_environment_is_named(tmp_path: Path) -> None:
    host = GpuHost(tmp_path, more={"SGLANG_PLUGINS": "other"})
    assert "SGLANG_PLUGINS=other keeps the DDTREE plugin out" in refused(serve(host, *DDTREE, "--port", "0"))


def test_another_version_is_a_warning(tmp_path: Path) -> None:
    result = serve(GpuHost(tmp_path, version="0.5.18"), *DDTREE, "--port", "0")
    assert result.returncode == 0
    assert "tested with SGLang 0.5.17; this is 0.5.18" in result.stderr


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert f"Port {port} on 127.0.0.1 is in use" in refused(serve(GpuHost(tmp_path), *DDTREE, "--port", port))


def test_a_file_of_flags_that_is_not_there_is_refused(tmp_path: Path) -> None:
    message = refused(serve(GpuHost(tmp_path), "--config", str(tmp_path / "flags.yaml"), "--port", "0"))
    assert message.endswith("flags.yaml: cannot be read: No such file or directory.")
    (tmp_path / "flags.yaml").write_text("tp-size: 1\n")
    argv = ["--config", str(tmp_path / "flags.yaml"), "--port", "0"]
    assert serve(GpuHost(tmp_path), *argv).stdout == "|".join(["started", *argv]) + "\n"


def test_a_drafter_for_another_target_is_refused(tmp_path: Path) -> None:
    drafter, target = write_drafter(tmp_path / "drafter"), tmp_path / "target"
    target.mkdir()
    (target / "config.json").write_text('{"hidden_size": 1024, "num_hidden_layers": 30, "vocab_size": 49152}', encoding="utf-8")
    argv = ["--model-path", str(target), "--speculative-draft-model-path", str(drafter)]
    message = refused(serve(GpuHost(tmp_path), *DDTREE[:4], *argv, "--port", "0"))
    assert "hidden_size is 576, but target's is 1024" in message


def split(folder: Path, prefix: str = "") -> None:
    """A checkpoint of one file in two, with an index."""
    whole = folder / "model.safetensors"
    length = int.from_bytes(whole.read_bytes()[:8], "little")
    header = json.loads(whole.read_bytes()[8 : 8 + length])
    whole.unlink()
    names = sorted(header)
    where = {}
    for number, part in enumerate((names[::2], names[1::2]), start=1):
        file = folder / f"model-{number}-of-2.safetensors"
        save_file({prefix + name: np.zeros(header[name]["shape"], np.float16) for name in part}, file)
        where.update(dict.fromkeys((prefix + name for name in part), file.name))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}), encoding="utf-8")


def drafter_problem(folder: Path, *more: str) -> str:
    """What is said of a drafter, with a target that it fits."""
    target = folder.parent / "target"
    target.mkdir(exist_ok=True)
    (target / "config.json").write_text('{"hidden_size": 576, "num_hidden_layers": 30, "vocab_size": 49152}', encoding="utf-8")
    words = [
        "--model-path",
        str(target),
        "--speculative-draft-model-path",
        str(folder),
        "--speculative-algorithm",
        "DDTREE",
        *more,
    ]
    try:
        serve_sglang._check_drafter(read_flags(words), folder)
    except FlagError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("prefix", ["", "model."])
def test_a_drafter_in_several_files_is_looked_at_as_one(tmp_path: Path, prefix: str) -> None:
    folder = write_drafter(tmp_path / "drafter")
    split(folder, prefix)
    assert drafter_problem(folder) == ""
    missing = folder / "model-2-of-2.safetensors"
    missing.unlink()
    assert f"{missing} cannot be read: No such file" in drafter_problem(folder)
    (folder / "model.safetensors.index.json").write_text("[]", encoding="utf-8")
    assert "is not an index of safetensors files" in drafter_problem(folder)
    (folder / "model.safetensors.index.json").unlink()
    assert "tensors are missing" in drafter_problem(folder)


def test_what_lies_beside_the_files_that_sglang_takes_is_not_looked_at(tmp_path: Path) -> None:
    folder = write_drafter(tmp_path / "drafter")
    (folder / "consolidated.safetensors").write_bytes(b"")
    assert drafter_problem(folder) == "", "the same weights in Mistral's form"
    (folder / "half.safetensors").write_bytes(b"")
    assert "not a whole safetensors file" in drafter_problem(folder), "without an index every file is taken"
    split(folder)
    assert drafter_problem(folder) == "", "with an index its own are"


def header(text: bytes) -> bytes:
    """A safetensors file that ends with its header."""
    return len(text).to_bytes(8, "little") + text


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (None, "holds no weights"),
        (b"", "not a whole safetensors file (0 bytes)"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "run git lfs pull"),
        (b"\x02\0\0\0\0\0\0\0[]", "does not begin with a safetensors header"),
        (header(b"[" * 100_000), "does not begin with a safetensors header"),
        (header(b'{"a": {"shape": [1e999], "data_offsets": [0, 0]}}'), "does not begin with a safetensors header"),
    ],
)
def test_a_drafter_without_its_weights_is_refused(tmp_path: Path, weights: bytes | None, words: str) -> None:
    folder = write_drafter(tmp_path / "drafter")
    file = folder / "model.safetensors"
    file.unlink()
    if weights is not None:
        file.write_bytes(weights)
    assert words in drafter_problem(folder)
    assert words in drafter_problem(folder, "--model-path=org/model", "--speculative-algorithm=DFLASH")
    assert drafter_problem(folder, "--speculative-draft-load-format", "dummy") == ""
    assert drafter_problem(folder, "--load-format=dummy") == ""
    assert drafter_problem(folder, "--load-format=auto", "--speculative-draft-load-format=dummy") == ""
    if weights is None:
        (folder / "pytorch_model.bin").write_bytes(b"")
        assert drafter_problem(folder) == "", "of another format, which SGLang reads"


def test_brackets_without_end_are_no_index_and_no_configuration(tmp_path: Path) -> None:
    folder = write_drafter(tmp_path / "drafter")
    split(folder)
    (folder / "model.safetensors.index.json").write_text("[" * 100_000, encoding="utf-8")
    assert "is not an index of safetensors files" in drafter_problem(folder)
    (folder / "config.json").write_text("[" * 100_000, encoding="utf-8")
    assert serve_sglang.target_shape(folder) is None


def test_a_quantised_drafter_is_not_held_to_the_shapes_of_plain_weights(tmp_path: Path) -> None:
    folder = write_drafter(tmp_path / "drafter")
    save_file({"fc.weight_packed": np.zeros((2, 2), np.int32)}, folder / "model.safetensors")
    assert drafter_problem(folder) == ""


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("--speculative-algorithm DDTREE --attention-backend triton", "needs a drafter"),
        ("--speculative-algorithm DFLASH", "needs a drafter"),
        ("{} --page-size 64", "--page-size 1, not 64"),
        ("{} --decode-attention-backend fa3", "--decode-attention-backend is fa3, give triton"),
        ("--speculative-algorithm DDTREE --speculative-draft-model-path d", "give --attention-backend triton"),
        ("{} --enable-deterministic-inference", "does not work with --enable-deterministic-inference"),
        ("{} --enable-strict-thinking", "does not work with --enable-strict-thinking"),
        ("{} --pp-size 2", "--pp-size above 1"),
        ("{} --speculative-draft-window-size 4", "below the block size 8"),
        ("{} --speculative-dflash-draft-window-size 4", "below the block size 8"),
        ("{} --speculative-ddtree-budget auto", "at least 1, not 'auto'"),
        ("{} --speculative-ddtree-budget 40 --speculative-ddtree-max-budget 32", "more than --speculative-ddtree-max-budget 32"),
        ("{} --speculative-draft-layers-window off", "of the embedded engine"),
        ("{} --speculative-ddtree-budget 300", "--speculative-ddtree-budget is 300; 1 to 256 are possible"),
        ("{} --speculative-ddtree-topk 65", "--speculative-ddtree-topk is 65; 1 to 64"),
        ("{} --speculative-ddtree-max-topk 2", "--speculative-ddtree-topk 4 is more than --speculative-ddtree-max-topk 2"),
        ("{} --speculative-ddtree-verify-widths 9 wide", "takes whole numbers, such as 9,17,33, not '9 wide'"),
        ("{} --speculative-ddtree-verify-widths 9,99", "verify-widths is 99; 1 to 33"),
        ("{} --speculative-ddtree-bud 300", "--speculative-ddtree-budget is 300"),
        ("{} --speculative-num-draft-tokens 8 --speculative-dflash-block-size 16", "are one setting"),
        ("{} --attention-context-parallel-size 2", "--attn-cp-size above 1"),
        ("{} --lora-paths a=b", "does not work with --lora-paths"),
        ("{} --device cpu", "--device cuda), not cpu"),
        ("{} --ddtree-self-test --skip-server-warmup", "leave --skip-server-warmup out"),
        ("{} --ddtree-self-test --tokenizer-worker-num 2", "--tokenizer-worker-num above 1"),
    ],
)
def test_what_would_fail_later_is_refused_now(argv: str, words: str) -> None:
    flags = read_flags(argv.format(" ".join(DDTREE)).split())
    assert any(words in error for error in check_sglang_flags(flags, 8).errors)


@pytest.mark.parametrize(
    "argv",
    [
        "{} --page-size 1 --speculative-draft-window-size 2048 --speculative-ddtree-budget 16 --tp 8",
        "--speculative-algorithm DFLASH --speculative-draft-model-path d --attention-backend fa3 --page-size 64",
        "--model-path m --page-size 64 --some-new-switch",
        "--config c.yaml --speculative-algorithm DDTREE --speculative-ddtree-draft-pool ring",
        "{} --speculative-ddtree-max-budget 64 --speculative-ddtree-verify-widths 65 9,17",
        "--speculative-algorithm DDTREE --speculative-draft-model-path d --prefill-attention-backend triton "
        "--decode-attention-backend triton",
    ],
)
def test_what_can_be_served_is_not_refused(argv: str) -> None:
    assert check_sglang_flags(read_flags(argv.format(" ".join(DDTREE)).split()), 8).errors == ()


@pytest.mark.parametrize("flag", ["--speculative-num-draft-tokens", "--speculative-dflash-block-size"])
def test_a_chains_block_of_0_is_refused_and_not_taken_for_the_drafters_own(flag: str) -> None:
    chain = ["--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", "d"]
    flags = read_flags([*chain, flag, "0"])
    (error,) = check_sglang_flags(flags, block_given(flags)).errors
    assert f"needs a block of at least 1: {flag} is 0" in error
    flags = read_flags([*chain, flag, "1"])
    assert check_sglang_flags(flags, block_given(flags)).errors == ()


@pytest.mark.parametrize(("block", "wrong"), [(0, True), (1, True), (2, False), (257, False), (258, True), (None, False)])
def test_a_block_has_bounds(block: int | None, wrong: bool) -> None:
    errors = check_sglang_flags(read_flags(DDTREE), block).errors
    assert bool(errors) == wrong
    assert all("the drafter's block" in error for error in errors)


def test_tree_flags_without_ddtree_are_a_warning() -> None:
    found = check_sglang_flags(read_flags(["--speculative-ddtree-budget", "8"]), None)
    assert found.errors == ()
    assert "no effect" in found.warnings[0]


def test_every_flag_of_the_plugin_is_in_the_catalogue() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    add_arguments(parser)
    spellings = {spelling for action in parser._actions for spelling in action.option_strings}
    assert len(spellings) > 5
    assert spellings <= set(BY_SPELLING)
    assert not any(BY_SPELLING[spelling].sglang for spelling in spellings)


def test_flags_are_read_with_either_spelling_and_the_last_one_counts() -> None:
    flags = read_flags(
        ["--tp", "2", "--tensor-parallel-size=8", "--enable-metrics", "--model", "m", "stray", "--new-list", "a", "b", "--x=y"]
    )
    assert flags["--tp-size"] == "8"
    assert flags["--enable-metrics"] == ""
    assert flags["--model-path"] == "m stray"
    assert flags["--new-list"] == "a b"
    assert flags["--x"] == "y"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["ring"], "ring needs --speculative-draft-window-size"),
        (["ring", "--speculative-draft-window-size", "512", "--enable-hierarchical-cache"], "--enable-hierarchical-cache"),
        (["small"], "is stock or ring, not 'small'"),
        (["ring", "--speculative-draft-window-size", "512"], ""),
        (["stock"], ""),
    ],
)
def test_a_ring_for_the_draft_pool_needs_a_window(flags: list[str], words: str) -> None:
    argv = [*DDTREE, "--speculative-ddtree-draft-pool", *flags]
    errors = check_sglang_flags(read_flags(argv), 8).errors
    assert bool(errors) == bool(words)
    assert words in "".join(errors)
