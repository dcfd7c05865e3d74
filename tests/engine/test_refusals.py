"""A refusal of DDTREE's ends SGLang with its sentence alone, where the launcher started it; any other error is shown whole."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import pytest

from engine_launch import refusals
from engine_launch.cli import TRACEBACK_VARIABLE
from engine_launch.spec.flags import FlagError, resolve
from engine_launch.spec.tree_sizes import OptionError, parse_widths, tree_sizes


def raised(call: Callable[[], object]) -> BaseException:
    try:
        call()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def refuse() -> None:
    tree_sizes(8, budget=300)


def test_only_what_this_package_raises_itself_is_a_refusal() -> None:
    for call in (refuse, lambda: parse_widths("wide"), lambda: resolve("--budgt")):
        error = raised(call)
        assert isinstance(error, (OptionError, FlagError))
        assert refusals.is_refusal(error, error.__traceback__)

    def somebody_elses() -> None:
        raise ValueError("of another package")

    def at_a_call_of_ours() -> None:
        exec(compile("int('x')", "ours", "exec"), {"__name__": "engine_launch.sglang_plugin.made_up"})

    def of_another_kind() -> None:
        exec(compile("raise RuntimeError('a bug')", "ours", "exec"), {"__name__": "engine_launch.sglang_plugin.made_up"})

    for call in (somebody_elses, at_a_call_of_ours, of_another_kind):
        error = raised(call)
        assert not refusals.is_refusal(error, error.__traceback__), call


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """Where the launcher has become this process; errors that are shown as Python shows them."""
    shown: list[BaseException] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: shown.append(error))
    monkeypatch.setenv(refusals.LAUNCHED_VARIABLE, str(os.getpid()))
    monkeypatch.delenv(TRACEBACK_VARIABLE, raising=False)
    return shown


def uncaught(error: BaseException) -> None:
    sys.excepthook(type(error), error, error.__traceback__)


def test_a_refusal_is_one_line_and_another_error_is_shown_whole(
    launched: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    refusals.install()
    uncaught(raised(refuse))
    assert launched == []
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("ddtree-launch: error: --speculative-ddtree-budget is 300; 1 to 256")
    other = raised(lambda: dict[str, int]()["missing"])
    uncaught(other)
    assert launched == [other]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("name", "value"), [(refusals.LAUNCHED_VARIABLE, "1"), (TRACEBACK_VARIABLE, "1")])
def test_elsewhere_nothing_is_changed(
    name: str, value: str, launched: list[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that only inherits the variable, and one whose user wants to see tracebacks."""
    monkeypatch.setenv(name, value)
    before = sys.excepthook
    refusals.install()
    assert sys.excepthook is before
