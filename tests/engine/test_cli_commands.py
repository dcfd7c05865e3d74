"""``ddtree-launch`` as a user runs it: one line per error, at once, and no traceback."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_launch.cli import main
from engine_launch.commands.unit import quote_word, unit_text
from engine_launch.spec.flags import parse_flags
from engine_launch.spec.installing import install_command
from tests.engine.checkpoints import write_drafter


def launch(*argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "engine_launch", *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **environment}, check=False)


def one_error_line(result: subprocess.CompletedProcess[str]) -> str:
    """The error; there must be nothing else, and the exit code must be 2."""
    lines = [line for line in result.stderr.splitlines() if not line.startswith("ddtree-launch: warning:")]
    assert result.returncode == 2, result
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("ddtree-launch: error: ")
    return lines[0]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A file that stands where a model file would; errors in this module come before it is read."""
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    return path


def test_wrong_budget_answers_in_half_a_second() -> None:
    """Measured as processor time, which does not depend on what else this machine does."""
    took = []
    for _ in range(3):
        before = os.times()
        message = one_error_line(launch("serve", "--speculative-ddtree-budget", "0"))
        after = os.times()
        took.append(after.children_user - before.children_user + after.children_system - before.children_system)
    assert "--speculative-ddtree-budget must be at least 1" in message
    assert min(took) < 0.5


def test_unknown_flag_names_the_nearest() -> None:
    assert "Did you mean --speculative-ddtree-budget?" in one_error_line(launch("serve", "--speculative-ddtree-buget", "8"))


def test_a_complaint_shows_control_characters_and_does_not_send_them() -> None:
    line = one_error_line(launch("doctor", "a\x1b]0;x\x07b"))
    assert "a\\x1b]0;x\\x07b" in line
    assert line.isprintable()


def test_drafter_that_is_missing_or_broken_is_told_before_loading(tmp_path: Path, model: Path) -> None:
    folder = tmp_path / "drafter"
    argv = ["serve", "--engine", "embedded", "--model-path", str(model), "--speculative-algorithm", "DDTREE"]
    argv += ["--speculative-draft-model-path", str(folder)]
    assert "does not exist" in one_error_line(launch(*argv))
    write_drafter(folder, block_size="eight")
    assert "block_size" in one_error_line(launch(*argv))
    write_drafter(folder)
    os.truncate(folder / "model.safetensors", 5000)
    assert "cut short" in one_error_line(launch(*argv))
    (folder / "model.safetensors").write_bytes(b"not a safetensors file")
    assert "not a whole safetensors file" in one_error_line(launch(*argv))


def test_window_below_the_trained_block_is_told_before_loading(tmp_path: Path, model: Path) -> None:
    folder = write_drafter(tmp_path / "drafter")
    argv = ("serve", "--model-path", str(model), "--speculative-algorithm", "DFLASH", "--speculative-draft-window-size", "7")
    message = one_error_line(launch(*argv, "--speculative-draft-model-path", str(folder)))
    assert "7 is below the block size 8" in message


def test_busy_port_is_told_before_loading(model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        assert f"Port {port} on 127.0.0.1 is in use" in one_error_line(
            launch("serve", "--model-path", str(model), "--port", port)
        )


def test_missing_model_says_how_to_get_it(tmp_path: Path) -> None:
    message = one_error_line(launch("serve", "--engine", "embedded", DDTREE_CACHE_DIR=str(tmp_path)))
    assert "ddtree-launch model get" in message


def test_key_does_not_reach_any_output(model: Path) -> None:
    command = [sys.executable, "-m", "engine_launch", "serve", "--model-path", str(model), "--port", "0"]
    with subprocess.Popen([*command, "--api-key", "sk-secret-key"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.terminate()
        rest = process.stdout.read()
    assert "api_key='******'" in line
    assert "sk-secret-key" not in line + rest


@pytest.mark.parametrize("command", ["", "serve", "serve --engine sglang", "doctor", "drafter", "unit", "model", "model get"])
def test_help_fits_80_columns_and_says_only_what_a_user_reads(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*command.split(), "--help"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("usage: ddtree-launch")
    assert max(map(len, said.splitlines())) <= 80
    assert "``" not in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("doctor --port x", "doctor: argument --port: takes a whole number, not 'x' (ddtree-launch doctor --help tells more)."),
        ("doctor --port 65536", "doctor: argument --port: must be from 0 to 65535, not 65536"),
        ("doctor --model-path m", "doctor: --model-path is none of its own words; flags of serve stand behind --"),
        ("doctor extra", "doctor: extra is none of its own words"),
        ("drafter", "drafter: the following arguments are required: PATH"),
        ("drafter --bogus x", "drafter: unrecognized arguments: --bogus"),
        ("drafter /nowhere/at/all", "the drafter's folder /nowhere/at/all does not exist."),
        (f"drafter {__file__}", "is a file: name the folder that holds the drafter's config.json."),
        ("serve --engine embedded --config x", "--config names a file of SGLang's, which the embedded engine does not read"),
        ("nosuch", "'nosuch' is not a command; there are serve, model, doctor, drafter, unit."),
    ],
)
def test_wrong_words_are_one_line_and_exit_2(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("ddtree-launch: error: ")
    assert said in line


@pytest.mark.skipif(shutil.which("sglang") is not None, reason="SGLang is installed here")
def test_sglang_engine_says_what_to_install() -> None:
    message = one_error_line(launch("serve", "--engine", "sglang", "--model-path", "m", "--flag-of-a-newer-release", "1"))
    assert message.rstrip().endswith(install_command("sglang", importlib.metadata.distribution))


def test_sglang_gets_its_flags_untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    from engine_launch.commands import serve, serve_sglang

    class Replaced(Exception):
        """The process would be another program now."""

    def execv(path: str, words: list[str]) -> None:
        raise Replaced(*words)

    monkeypatch.setattr(serve_sglang, "has_sglang", lambda: True)
    monkeypatch.setattr(os, "execv", execv)
    with pytest.raises(Replaced) as replaced:
        serve.serve(["--engine=sglang", "--tp=8", "--port=0", "--new-flag", "a b", "--engine-x", "1"])
    words = (sys.executable, "-m", "sglang.launch_server", "--tp=8", "--port=0", "--new-flag", "a b", "--engine-x", "1")
    assert replaced.value.args == words


@pytest.mark.parametrize(("gpu", "sglang", "embedded"), [(True, True, False), (True, False, True), (False, True, True)])
def test_auto_takes_sglang_where_it_and_a_gpu_are(
    monkeypatch: pytest.MonkeyPatch, gpu: bool, sglang: bool, embedded: bool
) -> None:
    from engine_launch.commands import serve

    chosen: list[str] = []

    def choose(name: str) -> int:
        chosen.append(name)
        return 0

    monkeypatch.setattr(serve, "has_gpu", lambda: gpu)
    monkeypatch.setattr(serve, "has_sglang", lambda: sglang)
    monkeypatch.setattr(serve, "serve_sglang", lambda argv: choose("sglang"))
    monkeypatch.setattr(serve, "serve_embedded", lambda argv: choose("embedded"))
    serve.serve([])
    assert chosen[0] == ("embedded" if embedded else "sglang")


@pytest.mark.parametrize(
    ("words", "sglangs"),
    [("", False), ("--engine embedded", False), ("--engine sglang", True), ("--engine=sglang", True), ("--engine wrong", False)],
)
def test_help_is_that_of_the_engine_that_is_asked_for(
    words: str, sglangs: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine_launch.commands.serve.has_gpu", lambda: False)
    assert main(["serve", *words.split(), "--help"]) == 0
    said = capsys.readouterr().out
    assert ("python -m sglang.launch_server --help" in said) is sglangs
    assert ("--random-seed" in said) is not sglangs


def test_help_without_an_engine_is_that_of_the_one_that_would_serve(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("has_gpu", "has_sglang"):
        monkeypatch.setattr(f"engine_launch.commands.serve.{name}", lambda: True)
    assert main(["serve", "--help"]) == 0
    assert "python -m sglang.launch_server --help" in capsys.readouterr().out


def test_errors_come_without_importing_torch(model: Path) -> None:
    code = (
        "import sys; from engine_launch.cli import main; "
        "main(['serve', '--engine', 'sglang', '--help']); code = main(sys.argv[1:]); "
        "assert not {'torch', 'transformers', 'sglang'} & set(sys.modules); sys.exit(code)"
    )
    argv = ["serve", "--model-path", str(model), "--speculative-algorithm", "DDTREE", "--speculative-draft-model-path", "/nope"]
    result = subprocess.run([sys.executable, "-c", code, *argv], capture_output=True, text=True, timeout=60, check=False)
    one_error_line(result)


# drafter


def test_drafter_in_words_and_in_json(tmp_path: Path) -> None:
    folder = write_drafter(tmp_path)
    words = launch("drafter", str(folder))
    assert words.returncode == 0
    assert "1 of 2 layers sliding, 512" in words.stdout
    assert "fits SmolLM2-135M-Instruct" in words.stdout
    report = json.loads(launch("drafter", str(folder), "--json").stdout)
    assert (report["fits"], report["block_size"], report["target_layer_ids"]) == (True, 8, [1, 15, 27])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": 512}, "hidden_size is 512"),
        ({"vocab_size": 50000}, "vocab_size is 50000"),
        ({"num_target_layers": 36}, "num_target_layers is 36"),
        ({"intermediate_size": 1024}, "has shape"),
        ({"num_hidden_layers": 3, "layer_types": ["full_attention"] * 3}, "11 of 36 tensors are missing"),
        ({"dflash_config": {"target_layer_ids": [1, 30], "mask_token_id": 16}, "num_target_layers": None}, "names layer 30"),
        ({"dflash_config": {"target_layer_ids": [1, 15, 27]}}, "mask_token_id is missing"),
    ],
)
def test_drafter_that_does_not_fit_says_why(tmp_path: Path, change: dict[str, object], message: str) -> None:
    result = launch("drafter", str(write_drafter(tmp_path, **change)))
    assert result.returncode == 1
    assert message in result.stdout
    assert "does not fit" in result.stdout


# doctor, model, unit


def test_doctor_reports_each_matter_once(tmp_path: Path) -> None:
    result = launch("doctor", "--json", "--port", "0", DDTREE_CACHE_DIR=str(tmp_path / "cache"))
    checks = {one["name"]: one for one in json.loads(result.stdout)["checks"]}
    assert set(checks) == {"python", "packages", "cpu", "memory", "cache", "model", "drafter", "port", "sglang"}
    assert checks["python"]["status"] == "ok"
    assert checks["model"]["status"] == "warn"
    assert "model get" in checks["model"]["message"]


def test_doctor_sees_a_damaged_model(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    (models / "SmolLM2-135M-Instruct.Q4_1.gguf").write_bytes(b"damaged")
    result = launch("doctor", "--json", DDTREE_CACHE_DIR=str(tmp_path))
    checks = {one["name"]: one for one in json.loads(result.stdout)["checks"]}
    assert result.returncode == 1
    assert "wrong SHA-256" in checks["model"]["message"]


@pytest.mark.parametrize("argv", [["model"], ["model", "put"], ["nonsense"]])
def test_wrong_command_is_one_line(argv: list[str]) -> None:
    one_error_line(launch(*argv))


@pytest.mark.parametrize(
    "argv", [["--help"], ["serve", "--help"], ["model", "--help"], ["unit", "--help"], ["drafter", "--help"]]
)
def test_help(argv: list[str]) -> None:
    result = launch(*argv)
    assert result.returncode == 0
    assert result.stdout.startswith("usage: ddtree-launch")


def read_as_systemd(line: str) -> list[str]:
    """Words of an ExecStart line as systemd.service(5) reads them: double quotes, C escapes, ``%%`` and ``$$``."""
    words: list[str] = []
    word, quoted, at = "", False, 0
    begun = False
    while at < len(line):
        character = line[at]
        if character == "\\":
            escape = line[at + 1]
            if escape == "x":
                word, at = word + chr(int(line[at + 2 : at + 4], 16)), at + 4
            else:
                word, at = word + escape, at + 2
            continue
        at += 1
        if character == '"':
            quoted, begun = not quoted, True
        elif character == " " and not quoted:
            if word or begun:
                words.append(word)
            word, begun = "", False
        else:
            word += character
    if word or begun:
        words.append(word)
    # A single % or $ would begin a specifier or a variable.
    assert not any(re.search(r"(?<!%)(%%)*%(?!%)", one) for one in words)
    assert not any(re.search(r"(?<!\$)(\$\$)*\$(?![${])", one) for one in words)
    return [one.replace("%%", "%").replace("$$", "$") for one in words]


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12), max_size=5))
def test_quoted_words_are_read_back_by_systemd(words: list[str]) -> None:
    line = " ".join(quote_word(word) for word in words)
    assert "\n" not in line
    assert read_as_systemd(line) == words


def test_unit_serves_with_the_given_flags_and_keeps_the_key_out() -> None:
    parsed = parse_flags(["--served-model-name", "50% off $HOME", "--enable-metrics", "--api-key", "sk-secret"])
    text = unit_text(["/opt/bin/ddtree-launch", "serve"], parsed)
    start = text.split("ExecStart=")[1].split("\nRestart")[0].replace("\\\n", "")
    assert read_as_systemd(" ".join(start.split())) == [
        *("/opt/bin/ddtree-launch", "serve", "--served-model-name", "50% off $HOME", "--enable-metrics"),
        *("--api-key", "${DDTREE_API_KEY}"),
    ]
    assert "sk-secret" not in text
    assert "EnvironmentFile=" in text


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "ddtree.service"
    unit.write_text(launch("unit", "--speculative-algorithm", "DDTREE", "--served-model-name", 'a "b" %c \\d').stdout)
    result = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert str(unit) not in result.stderr


def test_unit_refuses_what_serve_would_refuse() -> None:
    assert "at least 1" in one_error_line(launch("unit", "--speculative-ddtree-budget", "0"))
