"""The gate names what an SGLang lacks; tried on modules of the standard library, which lack what is asked of them here."""

from __future__ import annotations

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


def test_the_refusal_says_what_is_missing_and_what_to_install() -> None:
    text = refusal(check([Need("json:no_such")]))
    assert "json.no_such is not there" in text
    assert "SGLang 0.5.17" in text
