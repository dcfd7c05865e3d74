"""Odd words on the launcher's command lines for SGLang: each gets a sentence before anything starts, none an error of ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine_launch.cli import main
from engine_launch.commands import serve_sglang
from engine_launch.doctor.check import Status
from engine_launch.doctor.gpu_host import check_flags
from engine_launch.local_paths import expanded
from engine_launch.sglang_plugin import arguments
from engine_launch.spec.flags import BY_SPELLING, FlagError
from engine_launch.spec.sglang_checks import check_sglang_flags, read_flags
from tests.engine.checkpoints import flags_for, write_drafter
from tests.engine.gpu_hosts import GpuHost

DDTREE = ["--speculative-algorithm", "DDTREE", "--attention-backend", "triton", "--speculative-draft-model-path", "org/drafter"]
NOBODY = "~no-such-user-of-this-machine/model"


@pytest.fixture(autouse=True)
def sglang_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_sglang, "has_sglang", lambda: True)
    monkeypatch.setattr(serve_sglang, "_check_plugin", lambda flags: [])
    monkeypatch.setattr(serve_sglang, "GPU_DEVICES", ("/dev/null",))


def refusal(words: list[str]) -> str:
    with pytest.raises(FlagError) as raised:
        serve_sglang.check(words)
    return str(raised.value)


def doctors(words: list[str], name: str) -> tuple[Status, str]:
    found = {one.name: (one.status, one.message) for one in check_flags(read_flags(words), words, sglang=True)}
    return found[name]


@pytest.mark.parametrize("port", ["²", "99999", "65536", "-1", "", "abc", "3 0"])
def test_a_port_that_is_none_is_said(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal([*DDTREE, "--port", port]).startswith("--port ")
    assert main(["doctor", "--", "--engine", "embedded", "--port", port]) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line[6:].startswith("port ")]
    assert line.startswith("fail  port ")
    assert " --port " in line


@pytest.mark.parametrize("flag", ["--model-path", "--speculative-draft-model-path", "--tokenizer-path", "--config"])
@pytest.mark.parametrize("value", [NOBODY, "~/model"])
def test_the_home_folder_that_sglang_does_not_look_for_is_said(flag: str, value: str) -> None:
    words = [*DDTREE, flag, value]
    assert f"{flag} {value}: SGLang does not know ~" in refusal(words)
    names = {"--model-path": "target", "--speculative-draft-model-path": "drafter", "--tokenizer-path": "tokenizer"}
    check = f"flags {names.get(flag, 'config')}"
    status, message = doctors(words, check)
    assert status is Status.FAIL
    assert "SGLang does not know ~" in message


def test_a_home_folder_of_nobody_is_a_path_that_is_not_there() -> None:
    assert expanded(NOBODY) == Path(NOBODY)
    assert expanded("~/x") == Path.home() / "x"


def test_the_embedded_engine_says_that_there_is_no_such_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--engine", "embedded", "--model-path", NOBODY]) == 2
    assert NOBODY in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_said_before_sglang_loads(tmp_path: Path) -> None:
    assert "there is no such folder" in refusal([*DDTREE, "--model-path", str(tmp_path / "gone")])
    assert "holds no model" in refusal([*DDTREE, "--model-path", str(tmp_path)])


@pytest.mark.parametrize(
    ("flag", "files"), [("--tokenizer-path", ["tokenizer.json"]), ("--model-path", ["params.json", "consolidated.safetensors"])]
)
def test_folders_that_sglang_reads_without_a_configuration_are_none_of_these(tmp_path: Path, flag: str, files: list[str]) -> None:
    for file in files:
        (tmp_path / file).touch()
    serve_sglang.check([*DDTREE, flag, str(tmp_path), "--port", "0"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--config=flags.yaml"], "Write --config PATH"),
        (["--conf", "flags.yaml"], "Write --config PATH"),
        (["--config", "flags.yaml", "--config", "flags.yaml"], "given 2 times"),
        (["--config", "flags.txt"], "ends in .yaml or .yml"),
        (["--config", "list.yaml"], "holds no flags"),
        (["--config", "broken.yaml"], "is no YAML"),
        (["--config", "window.yaml"], "Write speculative-dflash-draft-window-size there"),
    ],
)
def test_a_file_of_flags_that_sglang_does_not_read_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    if words[-1] in ("list.yaml", "broken.yaml", "window.yaml"):
        pytest.importorskip("yaml")
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "flags.yaml": "tp-size: 2",
        "flags.txt": "tp-size: 2",
        "list.yaml": "- a",
        "broken.yaml": "a: [b",
        "window.yaml": "speculative-draft-window-size: 512",
    }.items():
        (tmp_path / name).write_text(text)
    assert said in refusal([*DDTREE, *words])
    status, message = doctors([*DDTREE, *words], "flags config")
    assert status is Status.FAIL
    assert said in message


def test_a_file_of_flags_with_something_in_it_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "flags.YML"
    file.write_text("# nothing but a remark\n")
    serve_sglang.check(["--config", str(file), "--port", "0"])


REFUSED_VALUES = {
    "--speculative-accept-threshold-single": "0.5",
    "--speculative-accept-threshold-acc": "0.5",
    "--kv-canary": "log",
    "--disaggregation-mode": "prefill",
    "--pp-size": "2",
    "--dcp-size": "2",
    "--attn-cp-size": "2",
}


def test_what_the_plugin_refuses_of_sglangs_flags_is_refused_before_sglang_loads() -> None:
    refused = [f"--{field.replace('_', '-')}" for field, _, _ in arguments._UNSUPPORTED] + ["--disaggregation-mode"]
    assert len(refused) > 14
    for flag in refused:
        words = [*DDTREE, flag, REFUSED_VALUES[flag]] if flag in REFUSED_VALUES else [*DDTREE, flag]
        assert BY_SPELLING[flag].name == flag
        assert any(flag in error for error in check_sglang_flags(read_flags(words), 8).errors), flag


@pytest.mark.parametrize(
    "words",
    [
        "--kv-cache-dtype fp4_e2m1",
        "--kv-cache-dtype mxfp8",
        "--speculative-draft-attention-backend trtllm_mha",
        "--speculative-ddtree-draft-pool ring --speculative-draft-window-size 512 --enable-streaming-session",
    ],
)
def test_values_that_the_plugin_refuses_are_refused_with_what_to_give(words: str) -> None:
    (error,) = check_sglang_flags(read_flags([*DDTREE, *words.split()]), 8).errors
    assert words.split()[-2 if "streaming" not in words else -1] in error
    assert ("can be used" in error) or ("give" in error) or ("use one" in error)


@pytest.mark.parametrize(
    "words",
    ["--kv-cache-dtype fp8_e4m3", "--speculative-accept-threshold-single 1", "--kv-canary none", "--disaggregation-mode null"],
)
def test_values_that_trees_bear_are_not_refused(words: str) -> None:
    assert check_sglang_flags(read_flags([*DDTREE, *words.split()]), 8).errors == ()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("DDTRE", "Did you mean DDTREE?"),
        ("DD-TREE", "Did you mean DDTREE?"),
        ("XYZ", "is none that"),
        ("eagle3", ""),
        ("NEXTN", ""),
    ],
)
def test_an_algorithm_that_there_is_not_is_a_warning(name: str, said: str) -> None:
    found = check_sglang_flags(read_flags(["--speculative-algorithm", name]), None)
    assert found.errors == ()
    assert bool(found.warnings) == bool(said)
    assert said in "".join(found.warnings)


@pytest.mark.parametrize("flag", ["--speculative-dflash-block-size", "--speculative-num-draft-tokens"])
def test_a_block_of_nothing_is_not_taken_for_none_given(tmp_path: Path, flag: str) -> None:
    words = flags_for(tmp_path, flag, "0")
    assert "the drafter's block" in refusal([*words, "--port", "0"])
    assert "the drafter's block" in doctors(words, "flags")[1]


@pytest.mark.parametrize(
    ("ranks", "heads", "said"),
    [
        ("2", (9, 3), "its 9 attention heads do not divide by --tp-size 2"),
        ("8", (96, 12), "its 12 KV heads and --tp-size 8"),
        ("3", (9, 3), ""),
        ("8", (64, 4), ""),
        ("4", (64, 8), ""),
    ],
)
def test_a_drafter_whose_heads_the_ranks_cannot_share_is_refused(
    tmp_path: Path, ranks: str, heads: tuple[int, int], said: str
) -> None:
    sizes = dict(zip(("num_attention_heads", "num_key_value_heads"), heads, strict=True))
    folder = write_drafter(tmp_path, **sizes)
    words = [
        *DDTREE[:4],
        "--speculative-draft-model-path",
        str(folder),
        "--model-path",
        "org/model",
        "--tp",
        ranks,
        "--port",
        "0",
    ]
    if not said:
        serve_sglang.check(words)
        return
    assert said in refusal(words)


def test_the_doctor_says_so_too(tmp_path: Path) -> None:
    status, message = doctors(flags_for(tmp_path, "--tp-size", "2"), "flags drafter")
    assert status is Status.FAIL
    assert "its 9 attention heads do not divide by --tp-size 2" in message


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        ([1, 15, 29], "layer 29, the last one of target, whose output SGLang does not capture"),
        ([27, 1, 15], "27, 1, 15, but SGLang captures"),
        ([1, 1, 15], "1, 1, 15, but SGLang captures"),
        ([1, 15, 28], ""),
    ],
)
def test_features_that_sglang_does_not_give_are_said(tmp_path: Path, layers: list[int], said: str) -> None:
    words = flags_for(tmp_path)
    write_drafter(Path(words[3]), dflash_config={"mask_token_id": 16, "target_layer_ids": layers})
    if not said:
        serve_sglang.check([*words, "--port", "0"])
        assert doctors(words, "flags drafter")[0] is Status.OK
        return
    assert said in refusal([*words, "--port", "0"])
    status, message = doctors(words, "flags drafter")
    assert status is Status.FAIL
    assert said in message
    embedded = {one.name: one.message for one in check_flags(read_flags(words), words)}
    assert said not in embedded["flags drafter"]


def test_an_sglang_of_no_known_version_is_a_warning(tmp_path: Path) -> None:
    host = GpuHost(tmp_path)
    environment = host.environment()
    (tmp_path / "site" / "sglang-0.5.17.dist-info" / "METADATA").unlink()
    (tmp_path / "site" / "sglang-0.5.17.dist-info").rmdir()
    command = [sys.executable, "-m", "engine_launch", "serve", "--engine", "sglang", *DDTREE, "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert done.returncode == 0, done
    assert "the version of this one is not known" in done.stderr
    command = [sys.executable, "-m", "engine_launch", "doctor", "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert "version unknown: DDTREE by this project's plugin" in done.stdout
    assert "not in this environment" not in done.stdout


def test_a_clone_on_the_path_has_a_version_that_is_not_known() -> None:
    clone = Path(__file__).parents[2]
    code = f"import sys; sys.path.insert(0, {str(clone)!r}); from engine_launch.cli import main; main(['--version'])"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("ddtree-launch version unknown\n", "")
