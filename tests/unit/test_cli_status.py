"""What ``status`` says of an engine that is not ready: a fault only where one is known."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from dflash_console.commands.output import Output
from dflash_console.commands.status import live_figures, print_status
from dflash_console.drift import truth_table
from dflash_console.state import HostState, RunState

from .plan_cases import state

READY = ("The server is fired up and ready to roll!",)


def shown(known: HostState) -> str:
    """The status for people."""
    said = io.StringIO()
    print_status(Output(json_wanted=False, stdout=said), known, live_figures(known), truth_table(known))
    return said.getvalue()


def unready(
    run: RunState, *, lines: tuple[str, ...] = READY, silent: bool = False, detail: str = "", result: str = ""
) -> HostState:
    known = state(lines=lines)
    assert known.service is not None
    service = replace(known.service, value=replace(known.service.value, state=run, detail=detail, result=result))
    return replace(known, service=service, ready=False, silent=silent, server=None)


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (unready(RunState.RUNNING, lines=()), "◐ running, not ready yet"),
        (unready(RunState.RUNNING), "◐ running, has not answered yet"),
        (unready(RunState.RUNNING, silent=True), "◐ running, but does not answer"),
        (unready(RunState.STARTING), "◐ starting"),
        (unready(RunState.STOPPING), "◑ stopping"),
        (unready(RunState.FAILED, result="signal", detail="systemd restarts it"), ", signal, systemd restarts it"),
        (unready(RunState.FAILED, result="success", detail="systemd restarts it"), ", systemd restarts it"),
    ],
)
def test_the_service_is_what_it_is_just_doing(known: HostState, words: str) -> None:
    (line,) = (line for line in shown(known).splitlines() if line.startswith("service"))
    assert words in line
    assert ("does not answer" in line) == known.silent
    assert "success" not in line
