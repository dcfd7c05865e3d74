"""A journal's stream that is cut, split, shortened or overtaken: every line once, in order, and what is missing is said."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from dflash_console.evidence.journal_cursor import FilePlace, LogPlace, parse_cursor, parse_place
from dflash_console.evidence.journal_stream import JournalReader

INVOCATION = "0f" * 16


def cursor(number: int, *, boot: str = "b0") -> str:
    return f"s=a1;i={number:x};b={boot};m={number * 10:x};t={number * 1000:x};x={number * 7:x}"


def record(number: int, message: object, **fields: str) -> bytes:
    found = {"__CURSOR": cursor(number), "_SYSTEMD_INVOCATION_ID": INVOCATION, "_STREAM_ID": "s1", "MESSAGE": message, **fields}
    return json.dumps(found).encode() + b"\n"


def texts(reader: JournalReader, data: bytes) -> list[str]:
    return [line.text for line in reader.feed(data)]


RECORDS = [record(number, f"line {number}") for number in range(1, 30)]
ALL = [f"line {number}" for number in range(1, 30)]


@given(st.lists(st.integers(0, sum(map(len, RECORDS))), max_size=6))
def test_streams_that_are_cut_anywhere_give_each_line_once(cuts: list[int]) -> None:
    reader, found, begin = JournalReader(), list[str](), 0
    for cut in cuts:
        found += texts(reader, b"".join(RECORDS[begin:])[:cut])
        if reader.cursor:
            # The next stream begins with the record that was read last.
            begin = next(at for at, raw in enumerate(RECORDS) if reader.cursor in raw.decode())
            reader.expect(reader.cursor)
        else:
            reader = JournalReader()
    found += texts(reader, b"".join(RECORDS[begin:]))
    assert found == ALL


@given(st.data())
def test_what_was_asked_for_before_the_stream_brought_it_is_given_once(data: st.DataObject) -> None:
    reader, found, sent, stored = JournalReader(), list[str](), 0, 0
    reader.expect(cursor(0), gap_if_other=False)
    while sent < len(RECORDS):
        stored = data.draw(st.integers(stored, len(RECORDS)))
        if data.draw(st.booleans()):
            begin = max(0, (parse_cursor(reader.cursor) or parse_cursor(cursor(0))).number - 1)  # type: ignore[union-attr]
            selected = reader.cursor != cursor(0)
            found += [line.text for line in reader.overtake(b"".join(RECORDS[begin:stored]), selected=selected)]
        else:
            stored = max(stored, sent + 1)
            found += texts(reader, b"".join(RECORDS[sent:stored]))
            sent = stored
    assert found == ALL


def test_a_record_that_is_gone_is_a_gap_in_its_place() -> None:
    reader = JournalReader()
    reader.feed(record(1, "one"))
    reader.expect(reader.cursor)
    lines = reader.feed(record(5, "five"))
    assert [(line.origin, line.invocation_id) for line in lines] == [("gap", INVOCATION), ("engine", INVOCATION)]


def test_a_cursor_that_the_stream_need_not_select_is_no_gap() -> None:
    reader = JournalReader()
    reader.expect(cursor(3), gap_if_other=False)
    assert texts(reader, record(5, "five")) == ["five"]


@given(st.text(st.characters(codec="utf-8", exclude_characters="\n\0"), min_size=1, max_size=40), st.data())
def test_a_line_in_several_records_is_one_line_though_another_stream_comes_between(text: str, data: st.DataObject) -> None:
    raw = text.encode()
    at = data.draw(st.integers(0, len(raw)))
    reader = JournalReader()
    first = record(1, list(raw[:at]) or "", _LINE_BREAK="line-max")
    assert texts(reader, first) == []
    assert texts(reader, record(2, "other", _STREAM_ID="s2")) == ["other"]
    assert texts(reader, record(3, list(raw[at:]) or "")) == [text]


def test_a_secret_that_is_split_between_records_is_masked() -> None:
    reader = JournalReader()
    reader.feed(record(1, "--api-key sk-12", _LINE_BREAK="line-max"))
    (line,) = reader.feed(record(2, "345 --port 3"))
    assert line.text == "--api-key ****** --port 3"


def test_a_line_without_an_end_is_given_in_pieces_and_kept_no_further() -> None:
    reader = JournalReader()
    sizes = [len(text) for number in range(60) for text in texts(reader, record(number, "x" * 49152, _LINE_BREAK="line-max"))]
    assert sizes
    assert max(sizes) <= 1024 * 1024 + 49152


def test_the_journals_own_restart_is_said_and_a_boot_is_not() -> None:
    started = {"MESSAGE_ID": "f77379a8490b408bbe5f6940505a777b", "SYSLOG_IDENTIFIER": "systemd-journald"}
    reader = JournalReader()
    assert texts(reader, record(1, "Journal started", **started)) == [], "of a journal of which nothing was read yet"
    reader.feed(record(2, "line"))
    (said,) = reader.feed(record(3, "Journal started", **started))
    assert (said.origin, said.invocation_id) == ("console", INVOCATION)
    assert reader.feed(record(4, "Journal started", **started, __CURSOR=cursor(4, boot="b1"))) == []


def test_what_a_manager_says_is_of_the_start_that_it_speaks_of() -> None:
    manager = {"SYSLOG_IDENTIFIER": "systemd", "INVOCATION_ID": "aa" * 16, "_SYSTEMD_INVOCATION_ID": "cc" * 16}
    journal = {"SYSLOG_IDENTIFIER": "systemd-journald", "OBJECT_SYSTEMD_INVOCATION_ID": "bb" * 16, "N_DROPPED": "12"}
    reader = JournalReader()
    first, second, third = (
        *reader.feed(record(1, "Started x.service.", **manager)),
        *reader.feed(record(2, "Suppressed 12 messages from x.service", **journal)),
        *reader.feed(record(3, "spoofed", INVOCATION_ID="aa" * 16)),
    )
    assert (first.origin, first.invocation_id) == ("manager", "aa" * 16)
    assert (second.origin, second.invocation_id) == ("gap", "bb" * 16)
    assert (third.origin, third.invocation_id) == ("engine", INVOCATION), "an engine cannot put its lines into another start"


@given(st.integers(0, 2**50), st.booleans(), st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 2**50)), max_size=2))
def test_a_place_reads_as_it_was_written(number: int, at_entry: bool, files: list[tuple[int, int]]) -> None:
    place = LogPlace(cursor(number), tuple(FilePlace(*file) for file in files), at_entry)
    assert parse_place(str(place)) == place


@given(st.text(max_size=60) | st.text("s=ibmtx;@file:0123abc", max_size=60))
def test_no_text_makes_the_readers_of_cursors_fail_otherwise_than_in_words(text: str) -> None:
    parse_cursor(text)
    with contextlib.suppress(NotOurs), no_cursor():
        parse_place(text)


class NotOurs(Exception):
    """The reader refused, in words."""


@contextlib.contextmanager
def no_cursor() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise (NotOurs if "no cursor" in str(error) else AssertionError)(str(error)) from None
