"""What scripts see of an operation's end: nothing was changed is one thing, changed and not confirmed another."""

from __future__ import annotations

import io

import pytest

from dflash_console.apply import ApplyResult, Verdict
from dflash_console.commands.operation_output import exit_code, print_result
from dflash_console.commands.outcome import ExitCode
from dflash_console.commands.output import Output
from dflash_console.plan import Mode


@pytest.mark.parametrize(
    ("verdict", "mode", "code"),
    [
        (Verdict.CONFIRMED, Mode.RESTART, ExitCode.FINE),
        (Verdict.UNNEEDED, Mode.RESTART, ExitCode.FINE),
        (Verdict.REFUSED, Mode.HOT, ExitCode.FAILED),
        (Verdict.WRITE_FAILED, Mode.RESTART, ExitCode.FAILED),
        (Verdict.WRITE_FAILED, Mode.HOT, ExitCode.NOT_CONFIRMED),
        (Verdict.UNKNOWN, Mode.RESTART, ExitCode.NOT_CONFIRMED),
        (Verdict.LINK_DOWN, Mode.RESTART, ExitCode.NOT_CONFIRMED),
    ],
)
def test_the_exit_code_tells_whether_something_was_changed(verdict: Verdict, mode: Mode, code: ExitCode) -> None:
    result = ApplyResult(verdict is Verdict.CONFIRMED, verdict, "", "one", mode, ())
    assert exit_code(result) is code


def test_a_roll_back_that_failed_is_called_that_and_is_not_advised_again() -> None:
    said = io.StringIO()
    failed = ApplyResult(False, Verdict.ROLLBACK_FAILED, "the process died at once", "one", Mode.RESTART, ())
    print_result(Output(json_wanted=False, stdout=said), failed)
    assert said.getvalue().startswith("✗ the roll-back failed after ")
    assert "go back to the last confirmed configuration with" not in said.getvalue()
    assert "logs --this-start" in said.getvalue()
