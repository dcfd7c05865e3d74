"""Which environment variables a start changed, told from what the two processes were given."""

from __future__ import annotations

import os
import sys

from dflash_console.apply.variables import Variables, changed_variables, environment_of, unproven_words
from dflash_console.hosts.local import LocalTransport


def test_two_processes_tell_it_also_of_a_file_that_was_edited_by_hand_before() -> None:
    written = {"KEPT": "2", "SAME": "1"}
    before = Variables(written, {"KEPT": "1", "SAME": "1", "INVOCATION_ID": "a"})
    after = Variables(written, {"KEPT": "2", "SAME": "1", "INVOCATION_ID": "b"})
    assert changed_variables(before, after) == ("KEPT",)
    assert changed_variables(after, after) == ()


def test_one_that_came_and_one_that_went_are_changes() -> None:
    before = Variables({"OLD": "1"}, {"OLD": "1"})
    after = Variables({"NEW": "1"}, {"NEW": "1"})
    assert changed_variables(before, after) == ("NEW", "OLD")


def test_where_a_process_cannot_be_seen_the_configurations_tell_it() -> None:
    assert changed_variables(Variables({"KEPT": "1"}), Variables({"KEPT": "2"}, {"KEPT": "2"})) == ("KEPT",)
    assert changed_variables(Variables({"KEPT": "1"}, {"KEPT": "0"}), Variables({"KEPT": "1"})) == ()


def test_names_are_said_and_values_are_not() -> None:
    assert (
        unproven_words(("A", "B"))
        == "not proven: environment variables A, B, changed by this start: no line of its log tells them"
    )
    assert unproven_words(("A",)).endswith("variable A, changed by this start: no line of its log tells it")
    assert unproven_words(()) == ""
    assert "secret" not in repr(Variables({"TOKEN": "secret"}, {"TOKEN": "secret"}))


async def test_what_a_process_was_started_with_is_read() -> None:
    found = await environment_of(LocalTransport(), os.getpid())
    assert found is not None
    assert sys.platform == "linux"
    assert await environment_of(LocalTransport(), 2**22 + 1) is None
