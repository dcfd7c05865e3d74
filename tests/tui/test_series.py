"""Samples over time: bounded, resampled to a plot's width, and never bridging what is missing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dflash_console.tui.series import Mark, Point, Series, nice_ticks, resample, span_of_past, time_ticks


def test_a_resampled_curve_has_at_most_one_point_a_column() -> None:
    points = [Point(float(second), 10.0) for second in range(900)]
    curve = resample(points, 0.0, 900.0, 60, gap=5.0)
    assert sum(len(xs) for xs, _ in curve.runs) <= 60


def test_a_column_is_the_mean_of_its_samples() -> None:
    curve = resample([Point(1.0, 10.0), Point(2.0, 30.0)], 0.0, 100.0, 1, gap=5.0)
    assert curve.runs == (((2.0,), (20.0,)),)


def test_silence_breaks_the_line_instead_of_drawing_through_it() -> None:
    points = [Point(1.0, 5.0), Point(2.0, 5.0), Point(60.0, 9.0), Point(61.0, 9.0)]
    assert len(resample(points, 0.0, 100.0, 100, gap=5.0).runs) == 2


def test_an_unknown_value_breaks_the_line_and_is_not_zero() -> None:
    points = [Point(1.0, 5.0), Point(2.0, None), Point(3.0, 6.0)]
    curve = resample(points, 0.0, 10.0, 10, gap=5.0)
    assert [ys for _, ys in curve.runs] == [(5.0,), (6.0,)]


def test_a_clock_that_was_set_back_adds_no_sample() -> None:
    series = Series()
    series.add(10.0, 1.0)
    series.add(9.0, 2.0)
    assert len(series) == 1


def test_samples_older_than_the_longest_span_are_forgotten() -> None:
    series = Series(keep=10.0)
    for second in range(100):
        series.add(float(second), 1.0)
    assert len(series) == 11


def test_history_goes_before_what_was_sampled_since() -> None:
    series = Series()
    series.add(100.0, 3.0)
    series.prepend([Point(50.0, 1.0), Point(60.0, 2.0), Point(100.0, 9.0)])
    assert [point.value for point in series.since(0.0)] == [1.0, 2.0, 3.0]


@given(st.floats(0.001, 1e6), st.integers(3, 40))
def test_ticks_are_round_rise_from_zero_and_reach_the_top(top: float, rows: int) -> None:
    ticks = nice_ticks(top, rows)
    assert ticks[0] == 0
    assert ticks[-1] >= top * 0.99
    assert list(ticks) == sorted(ticks)
    assert len(ticks) <= 6


@given(st.floats(0, 2e9), st.sampled_from([60.0, 300.0, 900.0, 3600.0, 21_600.0, 86_400.0]), st.integers(2, 8))
def test_moments_of_the_time_axis_lie_inside_the_span(start: float, span: float, number: int) -> None:
    moments = time_ticks(start, start + span, number)
    assert all(start <= moment <= start + span for moment in moments)
    assert len(moments) <= max(number + 1, 5)


def test_a_mark_is_a_moment_with_a_label() -> None:
    assert Mark(1.0, "restart") in {Mark(1.0, "restart")}


def test_the_plots_begin_with_the_shortest_span_that_holds_what_is_known() -> None:
    now = 10_000.0

    def known(age: float) -> list[Point]:
        return [Point(now - age + second, 1.0) for second in range(int(age))]

    assert span_of_past([], 900, now) == 60
    assert span_of_past(known(40), 900, now) == 60
    assert span_of_past(known(200), 900, now) == 300
    assert span_of_past(known(2_000), 900, now) == 900
    assert span_of_past([Point(now - 5_000, 1.0), Point(now - 100, 1.0)], 900, now) == 300, "what is older does not count"
