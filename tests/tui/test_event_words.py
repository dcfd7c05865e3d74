"""The log of a start as sentences: what a person wants to be told of without reading the log."""

from __future__ import annotations

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
