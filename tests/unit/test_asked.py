"""What a whole command line changes: the settings, the flags that are none, and what nothing proves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dflash_console.apply.asked import asked_changes, unproven
from dflash_console.evidence.server import Dialect
from dflash_console.knobs import OFF, Source, Value
from dflash_console.plan import Mode
from dflash_console.state import Aged

from .plan_cases import BASE, drafter, plan, state

BEFORE = ("ddtree-launch", "serve", "--speculative-algorithm", "DDTREE", "--speculative-ddtree-budget", "8", "--port", "30100")


def moved(*command: str) -> dict[str, tuple[object, object]]:
    changes = asked_changes(command, BEFORE, Dialect.EMBEDDED)
    return {change.knob: (change.old, change.new) for change in changes if change.old != change.new}


def test_a_flag_that_is_no_setting_is_a_change_like_any_other_and_proven_by_the_process() -> None:
    command = (*BEFORE[:-1], "30004")
    assert moved(*command) == {"flag:--port": ("30100", "30004")}
    (port,) = (change for change in asked_changes(command, BEFORE, Dialect.EMBEDDED) if change.knob == "flag:--port")
    assert (port.sources, port.how) == ((Source.PROCESS,), "the new process's own command line")
    assert unproven(command, BEFORE, (port,)) == ()


def test_flags_that_come_and_go_are_changes_and_those_that_stay_are_none() -> None:
    assert moved(*BEFORE[:-2], "--trust-remote-code") == {
        "flag:--port": ("30100", None),
        "flag:--trust-remote-code": (None, True),
    }
    assert moved(*BEFORE) == {}


def test_what_cannot_be_proven_is_named_and_a_secret_is_not_shown() -> None:
    for command, words in (
        ((*BEFORE, "--api-key", "geheim"), ("--api-key",)),
        (("nice", *BEFORE), ("words beside the engine's own flags",)),
        ((*BEFORE, "--cuda-graph-bs", "1", "2"), ("--cuda-graph-bs",)),
        (BEFORE, ()),
    ):
        changes = asked_changes(command, BEFORE, Dialect.EMBEDDED)
        assert "geheim" not in repr(changes)
        assert unproven(command, BEFORE, changes) == words, command


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ((), {"layers_window": OFF}),
        (("--speculative-draft-layers-window", "config"), {"layers_window": OFF}),
        ((), {"draft_window": 512}),
        (("--speculative-draft-window-size", "512"), {"draft_window": OFF}),
        ((), {"algorithm": "PLAIN"}),
    ],
)
def test_the_way_back_is_said_in_the_words_of_the_way_there(flags: tuple[str, ...], wanted: dict[str, Value | None]) -> None:
    before = (*BASE, *flags)
    known = replace(
        state(before, now={"speculative_draft_window_size": 512 if "512" in flags else None}), drafter=Aged(drafter(), 0.0)
    )
    made = plan(known, wanted, Mode.RESTART)
    back = {change.knob: (change.old, change.new) for change in asked_changes(before, made.command, Dialect.EMBEDDED)}
    for change in made.changes:
        assert back[change.knob] == (change.new, change.old)


def test_a_window_of_the_layers_that_is_not_as_trained_is_said_as_it_is() -> None:
    known = replace(state((*BASE, "--speculative-draft-layers-window", "512")), drafter=Aged(drafter(), 0.0))
    assert [change.old for change in plan(known, {"layers_window": OFF}, Mode.RESTART).changes] == [512]
    ignored = replace(state(now={"layers_window": None}), drafter=Aged(drafter(), 0.0))
    assert [change.old for change in plan(ignored, {"layers_window": 256}, Mode.RESTART).changes] == [OFF]
