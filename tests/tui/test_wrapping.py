"""Sentences with wide characters stay inside their column."""

from __future__ import annotations

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from dflash_console.tui.wrapping import hung, in_column, wrapped

WIDE = (
    "設定 in the unit file names /srv/モデル/日本語のとても長い名前のフォルダー/drafter and the server reports another one",
    "モデルの設定ファイルが見つかりませんでしたのでサーバーは起動しませんでした",
    "plain words, then 日本語 and plain words again, which go on for some time",
)


@pytest.mark.parametrize("text", WIDE)
@pytest.mark.parametrize("width", [12, 30, 31, 74])
def test_no_line_takes_more_cells_than_there_are_and_nothing_is_lost(text: str, width: int) -> None:
    lines = wrapped(text, width, first="  - ", rest="    ")
    assert max(map(cell_len, lines)) <= width
    assert lines[0].startswith("  - ")
    assert all(line.startswith("    ") for line in lines[1:])
    said = "".join(line[4:] for line in lines)
    assert said.replace(" ", "") == text.replace(" ", "")


def test_a_word_goes_on_the_next_line_whole_where_it_fits_there() -> None:
    assert wrapped("ab 日本 cd", 6) == ["ab", "日本", "cd"]
    assert wrapped("ab 日本 cd", 7) == ["ab 日本", "cd"]


def test_words_without_wide_characters_are_folded_as_ever() -> None:
    assert wrapped("one two-three four", 9, rest="  ") == ["one", "  two-thr", "  ee four"]
    assert wrapped("one two-three four", 9, rest="  ", hyphens=True) == ["one two-", "  three", "  four"]
    assert wrapped("one two three", 7) == ["one two", "three"]
    assert wrapped("", 7) == []


def test_a_column_of_one_cell_ends_too() -> None:
    assert wrapped("日本", 1) == ["日", "本"]


@pytest.mark.parametrize("keep_end", [False, True])
@pytest.mark.parametrize("text", [*WIDE, "short", "日本", ""])
@pytest.mark.parametrize("cells", [2, 9, 10, 24])
def test_a_column_is_as_wide_as_it_should_be_whatever_is_in_it(text: str, cells: int, keep_end: bool) -> None:
    shown = in_column(text, cells, keep_end=keep_end)
    assert cell_len(shown) == cells
    assert shown.endswith(" ")
    assert keep_end is False or text.endswith(shown.strip().removeprefix("…"))


SENTENCES = (
    Text()
    .append("Tree budget: 8 → 12\n", style="bold")
    .append("  proven by its line in the log and by the report\n", style="dim")
)
SENTENCES.append("! ", style="bold").append("日本語 is served by another process of this host, and not by the unit\n").append(
    "· short\n\n"
)


def test_a_sentence_goes_on_beneath_its_first_word_and_not_beneath_its_sign() -> None:
    assert hung(SENTENCES, 30, Console()).plain.split("\n") == [
        "Tree budget: 8 → 12",
        "  proven by its line in the",
        "  log and by the report",
        "! 日本語 is served by another",
        "  process of this host, and",
        "  not by the unit",
        "· short",
        "",
        "",
    ]


def test_where_all_of_it_fits_or_no_column_is_left_a_text_stays_as_it_is() -> None:
    assert hung(SENTENCES, 100, Console()).plain == SENTENCES.plain
    assert hung(SENTENCES, 20, Console()).plain == SENTENCES.plain


def test_a_folded_sentence_keeps_its_styles() -> None:
    folded = hung(SENTENCES, 30, Console())
    for word, style in (("report", "dim"), ("proven", "dim"), ("Tree", "bold"), ("! ", "bold")):
        at = folded.plain.index(word)
        assert any(span.start <= at < span.end and span.style == style for span in folded.spans)
    unit = folded.plain.index("unit")
    assert not any(span.start <= unit < span.end and span.style for span in folded.spans)
