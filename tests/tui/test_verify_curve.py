"""The measured cost of a verify, in a few cells."""

from __future__ import annotations

import pytest

from dflash_console.tui.verify_curve import curve_lines

CURVE = tuple((float(rows), 20.0 + rows) for rows in (1, 3, 5, 9, 13, 17, 25, 33, 49, 65))


@pytest.mark.parametrize("width", range(17, 90, 7))
def test_all_lines_fit_and_the_first_and_the_last_point_are_there(width: int) -> None:
    rows, milliseconds, heights = curve_lines(CURVE, width)
    assert len(rows) == len(milliseconds) == len(heights) <= width
    assert (rows.split()[1], rows.split()[-1]) == ("1", "65")
    assert (milliseconds.split()[1], milliseconds.split()[-1]) == ("21.0", "85.0")


def test_where_there_is_room_every_point_is_shown_once() -> None:
    assert curve_lines(CURVE, 65)[0].split()[1:] == ["1", "3", "5", "9", "13", "17", "25", "33", "49", "65"]


def test_the_largest_time_stands_highest() -> None:
    assert curve_lines(((1, 10.0), (9, 80.0)), 40)[2].split() == ["▂▂▂", "███"]


@pytest.mark.parametrize(("curve", "width"), [((), 80), (((1.0, 2.0),), 80), (CURVE, 16)])
def test_without_a_curve_or_room_there_are_no_lines(curve: tuple[tuple[float, float], ...], width: int) -> None:
    assert curve_lines(curve, width) == []


def test_times_that_cannot_be_are_shown_as_they_are_and_have_no_height() -> None:
    _, milliseconds, heights = curve_lines(((1, -500.0), (9, 0.0), (17, 10.0)), 60)
    assert milliseconds.split()[1:] == ["-500.0", "0.0", "10.0"]
    assert heights.split() == ["▁▁▁", "▁▁▁", "███"]
