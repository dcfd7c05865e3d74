"""Exported journal records become lines, however the message is stored and wherever the stream is cut."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from dflash_console.evidence.journal import LogLine, parse_export
from dflash_console.evidence.journal_stream import MAX_PENDING, JournalReader

from .support import CASES

EXPORT = (CASES / "18-journal-json" / "export.jsonl").read_bytes()


def test_every_kind_of_message_is_read() -> None:
    lines = parse_export(EXPORT.splitlines())
    long, bar, coloured, decode, first, second, binary, dropped = lines
    assert long.origin == "gap"
    assert "too long" in long.text
    assert bar.text == "Capturing batches (bs=1): 100%|█| 8/8\r"
    assert "block size mismatch" in coloured.text
    assert decode.text.startswith("[2026-07-23 06:18:57 TP0] Decode batch")
    assert (decode.pid, decode.priority, decode.at) == (4021, 6, 1784787537.0)
    assert (first.text, second.text) == ("first line", "second value of the same field")
    assert first.cursor == second.cursor == "s=aa11;i=5;b=bb22;m=1;t=1;x=1"
    assert binary.text == "\ufffd\ufffd\x00binary"
    assert dropped.origin == "gap"
    assert "311" in dropped.text


def test_a_record_that_was_cut_off_waits_for_its_rest() -> None:
    reader = JournalReader()
    record = json.dumps({"__CURSOR": "c", "MESSAGE": "hello", "_SYSTEMD_INVOCATION_ID": "ab"}).encode()
    assert reader.feed(record[:20]) == []
    assert reader.pending == 20
    assert reader.feed(record[20:] + b"\n") == [LogLine("hello", cursor="c", invocation_id="ab")]


def test_a_record_with_a_newline_torn_into_it_is_joined_or_said_to_be_lost() -> None:
    record = json.dumps({"MESSAGE": "hello"}).encode()
    joined = JournalReader().feed(record[:10] + b"\n" + record[10:] + b"\n")
    assert [line.text for line in joined] == ["hello"]
    lost = JournalReader().feed(record[:10] + b"\n" + record + b"\n")
    assert [line.origin for line in lost] == ["gap", "engine"]


def test_words_of_the_manager_are_told_from_the_engines() -> None:
    lines = JournalReader().feed(
        b'{"MESSAGE": "Started x.", "SYSLOG_IDENTIFIER": "systemd"}\n{"MESSAGE": "y", "SYSLOG_IDENTIFIER": "python"}\n'
    )
    assert [line.origin for line in lines] == ["manager", "engine"]


def test_a_warning_of_the_tool_between_records_is_a_gap_and_hides_nothing() -> None:
    lines = JournalReader().feed(b'Hint: you are seeing not all messages\n{"MESSAGE": "x"}\n')
    assert [line.origin for line in lines] == ["gap", "engine"]


def test_secrets_in_a_message_are_masked_when_it_is_read() -> None:
    (line,) = JournalReader().feed(b'{"MESSAGE": "started with --api-key sk-12345 --port 3"}\n')
    assert "sk-12345" not in line.text


def test_an_endless_record_is_given_up_as_a_gap() -> None:
    reader = JournalReader()
    lines = reader.feed(b"{" + b"x" * MAX_PENDING)
    assert [line.origin for line in lines] == ["gap"]
    assert reader.pending == 0


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=30)


@given(st.lists(TEXTS, min_size=1, max_size=6), st.lists(st.integers(1, 40), max_size=12), st.booleans())
def test_a_stream_reads_the_same_however_it_is_cut(texts: list[str], sizes: list[int], as_bytes: bool) -> None:
    messages: list[object] = [list(text.encode()) if as_bytes and text else text for text in texts]
    data = b"".join(json.dumps({"MESSAGE": message, "_PID": "7"}).encode() + b"\n" for message in messages)
    whole = JournalReader().feed(data)
    reader, parts, start = JournalReader(), [], 0
    for size in [*sizes, len(data)]:
        parts += reader.feed(data[start : start + size])
        start += size
    assert parts == whole
    assert len(whole) == len(texts)


@given(st.binary(max_size=120))
def test_no_bytes_make_the_reader_fail(data: bytes) -> None:
    JournalReader().feed(data + b"\n")
    parse_export([data])
