"""Pictures of plots: inside their size, with marks, baseline and gaps, and cheap."""

from __future__ import annotations

import time

from dflash_console.tui.plotting import PlotColours, PlotSpec, brief_label, draw, from_ansi, together
from dflash_console.tui.series import Curve, Mark, Series, resample

from .support import T0, wavy_past

COLOURS = PlotColours((1, 2, 3), (4, 5, 6), (7, 8, 9), (90, 90, 90))


def wavy_spec(**changes: object) -> PlotSpec:
    past = wavy_past(T0 + 900)
    series = Series()
    series.prepend(past.decode)
    curve = resample(series.since(T0), T0, T0 + 900, 104, gap=5.0)
    values: dict[str, object] = {"marks": past.marks, "baseline": 29.0, "baseline_label": "plain 29", **changes}
    return PlotSpec(curve, T0, T0 + 900, **values)  # type: ignore[arg-type]


def test_a_plot_fills_exactly_the_cells_it_was_given() -> None:
    lines = draw(wavy_spec(), COLOURS, 60, 14)
    assert len(lines) == 14
    assert {line.cell_len for line in lines} == {60}


def test_a_plot_that_has_no_room_is_empty_instead_of_broken() -> None:
    assert draw(wavy_spec(), COLOURS, 10, 14) == []
    assert draw(wavy_spec(), COLOURS, 60, 2) == []


def test_marks_carry_their_words_and_the_baseline_its_value() -> None:
    text = "\n".join(line.plain for line in draw(wavy_spec(), COLOURS, 80, 16))
    assert "restart" in text
    assert "budget 16" in text
    assert "plain 29" in text


def test_marks_too_close_for_words_keep_their_lines_and_the_newest_its_word() -> None:
    marks = (Mark(T0 + 830, "first"), Mark(T0 + 860, "second"))
    text = "\n".join(line.plain for line in draw(wavy_spec(marks=marks), COLOURS, 60, 12))
    assert "second" in text
    assert "first" not in text


def test_the_line_has_the_colour_of_the_theme() -> None:
    colours = {str(span.style) for line in draw(wavy_spec(), COLOURS, 60, 12) for span in line.spans}
    assert any("#010203" in colour or "rgb(1,2,3)" in colour for colour in colours)


def test_a_plot_without_samples_still_has_its_axes() -> None:
    text = "\n".join(line.plain for line in draw(PlotSpec(Curve(()), T0, T0 + 60), COLOURS, 60, 10))
    assert "0┤" in text


def test_only_foreground_colours_are_taken_from_the_library() -> None:
    text = from_ansi("\x1b[0m\x1b[38;2;9;8;7m\x1b[48;5;15mab\x1b[0mc")
    assert text.plain == "abc"
    assert [(span.start, span.end) for span in text.spans] == [(0, 2)]


def test_a_redraw_is_cheap_whatever_the_length_of_history() -> None:
    spec = wavy_spec()
    draw(spec, COLOURS, 60, 14)
    begun = time.process_time()
    for _ in range(20):
        draw(spec, COLOURS, 60, 14)
    assert (time.process_time() - begun) / 20 < 0.03


def test_settings_changed_by_one_apply_are_one_mark_with_all_their_words() -> None:
    marks = (Mark(T0 + 600, "budget 12"), Mark(T0 + 600.2, "window 512"), Mark(T0 + 601, "window 512"))
    text = "\n".join(line.plain for line in draw(wavy_spec(marks=marks), COLOURS, 80, 16))
    assert text.count("budget 12, window 512") == 1


def test_marks_that_are_cells_apart_stay_two() -> None:
    marks = [Mark(T0, "restart"), Mark(T0 + 30, "restart")]
    assert together(marks, 10.0) == marks


def test_a_long_name_is_whole_where_a_plot_is_wide_and_short_where_it_is_not() -> None:
    assert brief_label("compact draft cache 512", 100) == "compact draft cache 512"
    assert brief_label("compact draft cache 512", 34) == "draft cache 512"
