"""The log of a start as sentences: what a person wants to be told of without reading the log."""

from __future__ import annotations

import pytest

from dflash_console.evidence.engine_log import StartLog
from dflash_console.evidence.journal import LogLine
from dflash_console.tui.event_words import event_words

CONFIRMATION = "Initialized DDTREE draft runner. block_size=4, tree_budget=8, tree_topk=4, draft_window_size=None"
DECODE = "Decode batch. #running-req: 1, #token: 400, accept len: {length}, accept rate: 0.1, gen throughput (token/s): 90.0"


def words_after(length: float, times: int) -> list[str]:
    lines = (CONFIRMATION, *[DECODE.format(length=length)] * times)
    log = StartLog().add_all(LogLine(text, number=number) for number, text in enumerate(lines, 1))
    return [event.words for event in event_words(log) if event.tone == "warning"]


def test_a_collapsed_acceptance_is_an_event() -> None:
    assert words_after(1.03, 4) == []
    [said] = words_after(1.03, 5)
    assert said.startswith("acceptance collapsed: commit length 1.03")


def test_every_draft_accepted_for_long_is_an_event() -> None:
    assert words_after(4.0, 19) == []
    [said] = words_after(4.0, 20)
    assert said.startswith("every draft is accepted")


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ("draft_window_size=512, compact_cache=True", "compact draft cache 512, budget 8"),
        ("draft_window_size=None, compact_cache=False", "compact draft cache off, budget 8"),
        ("compact_cache=True", "compact draft cache on, budget 8"),
        ("draft_window_size=512, compact_cache=False", "compact draft cache 512, in use off, budget 8"),
    ],
)
def test_the_compact_draft_cache_has_one_name_and_a_line_that_contradicts_itself_shows_it(printed: str, said: str) -> None:
    line = LogLine(f"Initialized DDTREE draft runner. block_size=4, tree_budget=8, {printed}", number=1)
    event = event_words(StartLog().add(line))[-1]
    assert event.words == f"draft runner: {said} (confirmed, log line 1)"


@pytest.mark.parametrize(
    ("line", "differs"),
    [
        ("speculative_ddtree_budget: 32 -> 32", False),
        ("speculative_ddtree_budget: auto -> 0", False),
        ("speculative_draft_window_size: None -> 0", False),
        ("speculation: on -> 1", False),
        ("speculation: on -> 0", True),
        ("speculative_ddtree_budget: auto -> 32", True),
        ("speculative_ddtree_budget: 32 -> 31", True),
    ],
)
def test_a_value_that_is_set_again_is_no_change(line: str, differs: bool) -> None:
    log = StartLog().add(LogLine(f"Hot change applied. {line} (from /set_internal_state)", number=1))
    assert [point.change.differs for point in log.hot_changes] == [differs]
    event = event_words(log)[-1]
    assert event.words.endswith("changed while running" if differs else "set again, as it was")


def test_a_change_of_it_says_what_it_was() -> None:
    line = "Hot change applied. speculative_draft_window_size: 512 -> None (from /set_internal_state)"
    event = event_words(StartLog().add(LogLine(line, number=1)))[-1]
    assert event.words == "compact draft cache off (was 512): changed while running"
