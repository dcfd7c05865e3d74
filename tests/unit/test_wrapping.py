"""Sentences beside a column: wrapped on a terminal that has room, whole elsewhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_launch.spec.wrapping import LEAST_ROOM, under_itself

SENTENCE = "port 30000 on 127.0.0.1 is in use by another process: stop it, or choose another --port-of-the-server"


@pytest.mark.parametrize("room", [None, -5, 0, LEAST_ROOM - 1])
def test_without_room_or_a_terminal_a_sentence_stays_whole(room: int | None) -> None:
    assert under_itself(SENTENCE, room) == [SENTENCE]
    assert under_itself("", room) == [""]


@given(st.integers(LEAST_ROOM, 200))
def test_lines_fit_and_lose_no_word(room: int) -> None:
    lines = under_itself(SENTENCE, room)
    assert max(map(len, lines)) <= room
    assert " ".join(lines) == SENTENCE, "an option's name is not broken at its hyphens"


def test_nothing_is_one_empty_line() -> None:
    assert under_itself("", 80) == [""]
