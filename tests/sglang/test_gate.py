"""The gate names what an SGLang lacks; tried on modules of the standard library, which lack what is asked of them here."""

from __future__ import annotations

import ast
import logging
import sys
from pathlib import Path

import pytest

import engine_launch.sglang_plugin as plugin
from engine_launch.sglang_plugin import gate
from engine_launch.sglang_plugin.arguments import _UNSUPPORTED
from engine_launch.sglang_plugin.gate import Need, check, refusal


def test_names_and_parameters_that_are_there_are_no_finding() -> None:
    assert check([Need("json:dumps", ("obj", "indent")), Need("json:JSONDecoder.decode", ("s",)), Need("json:JSONEncoder")]) == []
    assert check([Need("pathlib:Path.home"), Need("fractions:Fraction.from_float", ("f",))]) == []


def test_each_kind_of_lack_is_named() -> None:
    needs = [Need("no_such_module:f"), Need("json:no_such"), Need("json:dumps", ("obj", "colour")), Need("string:digits", ("x",))]
    problems = [str(finding) for finding in check(needs)]
    assert problems[0].startswith("no_such_module.f cannot be imported (ModuleNotFoundError")
    assert problems[1] == "json.no_such is not there"
    assert problems[2] == "json.dumps does not take colour"
    assert problems[3] == "string.digits is not callable"


def test_a_parameter_that_is_newly_required_is_named() -> None:
    assert [str(finding) for finding in check([Need("json:JSONDecoder.decode", ("_w",))])] == [
        "json.JSONDecoder.decode asks for s"
    ]
    assert check([Need("json:JSONDecoder.decode", ("_w",), called=False)]) == []
    assert check([Need("os.path:join", ("a",)), Need("logging:Logger.info", ("msg",))]) == [], (
        "those that collect words ask for none"
    )


def imported() -> set[tuple[str, str]]:
    """Module and name of everything that the plugin imports from SGLang, wherever in a file that stands."""
    return {
        (node.module, name.name)
        for file in Path(plugin.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.split(".")[0] == "sglang"
        for name in node.names
    }


def test_whatever_the_plugin_imports_is_looked_for() -> None:
    needed = {need.name for need in (*gate.REGISTRATION, *gate.RUNNING)}
    unknown = [
        f"{module}:{name}"
        for module, name in sorted(imported())
        if not any(one == f"{module}:{name}" or one.startswith((f"{module}:{name}.", f"{module}.{name}:")) for one in needed)
    ]
    assert len(imported()) > 25
    assert unknown == []


def test_every_argument_that_is_refused_is_looked_for() -> None:
    needed = {need.name for need in gate.RUNNING}
    assert [field for field, _, _ in _UNSUPPORTED if f"sglang.srt.server_args:ServerArgs.{field}" not in needed] == []


@pytest.mark.parametrize(
    ("words", "level"),
    [
        (["--speculative-algorithm", "DDTREE"], logging.ERROR),
        (["--speculative-algorithm=ddtree"], logging.ERROR),
        (["--config", "server.yaml"], logging.WARNING),
        (["--speculative-algorithm", "EAGLE"], logging.DEBUG),
    ],
)
def test_why_there_is_no_ddtree_is_told_to_who_asked_for_it(
    words: list[str], level: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "argv", ["launch_server.py", *words])
    monkeypatch.setattr(gate, "REGISTRATION", (Need("json:no_such"),))
    with caplog.at_level(logging.DEBUG):
        plugin.register()
    (record,) = [record for record in caplog.records if record.name == plugin.__name__]
    assert record.levelno == level
    assert "json.no_such is not there" in record.getMessage()


def test_the_refusal_says_what_is_missing_and_what_to_install() -> None:
    text = refusal(check([Need("json:no_such")]))
    assert "json.no_such is not there" in text
    assert "SGLang 0.5.17" in text
