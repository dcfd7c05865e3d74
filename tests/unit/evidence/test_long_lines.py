"""Long lines of any shape are read in a moment: the screens wait for it, and a server may print a whole prompt on one line."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from dflash_console.evidence.journal import LogLine
from dflash_console.evidence.log_lines import HEAD, read_events
from dflash_console.evidence.secrets import MASK, mask_text
from dflash_console.evidence.start_log import MAX_TEXT, StartLog

LENGTH = 40_000
MOST_S = 2.0
"""Seconds of this process alone: a busy machine does not count. A pattern whose time grows with the square takes five and more
for these; the ones in use take a twentieth of one."""

SHAPES = {
    "blanks before a percentage": " " * LENGTH + "5%|",
    "words without a colon": "Decode batch. " + "a " * (LENGTH // 2),
    "flags": "--a " * (LENGTH // 4),
    "flags with a secret's name": "--api-key " * (LENGTH // 10),
    "hyphens": "abc-" * (LENGTH // 4),
    "hyphens and a secret's name": "my-secret-" * (LENGTH // 10),
    "letters and hyphens before a token": "x-" * (LENGTH // 2) + "token",
    "assignments in one word": "key " + "a=" * (LENGTH // 2),
    "half an address, many times": "key a://" * (LENGTH // 8),
    "bars on one line": "5%|" * (LENGTH // 3),
    "warnings": "draft worker " * (LENGTH // 13),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("read", [read_events, mask_text], ids=["events", "secrets"])
def test_a_long_line_takes_a_moment(read: Callable[[str], object], shape: str) -> None:
    begun = time.process_time()
    read(SHAPES[shape])
    assert time.process_time() - begun < MOST_S


def test_a_secret_far_down_a_long_line_is_masked_and_its_surroundings_stay() -> None:
    line = "x-" * LENGTH + " --api-key sk-1234567 and on"
    assert mask_text(line) == "x-" * LENGTH + f" --api-key {MASK} and on"


def test_all_flags_of_a_start_are_read_however_long_their_line_is() -> None:
    line = f"server_args=ServerArgs(served_model_name='{'m' * 2 * HEAD}', context_length=4096)"
    log = StartLog().add(LogLine(line, origin="engine"))
    assert log.server_args["context_length"] == "4096"


def test_what_is_kept_of_a_start_is_bounded_in_length_too() -> None:
    log = StartLog()
    for text in ("first " + "a" * LENGTH, "ERROR " + "b" * LENGTH, "Traceback (most recent call last):", "  " + "c" * LENGTH):
        log = log.add(LogLine(text, origin="engine"))
    kept = [*(mark.text for mark in log.phases.values()), *(remark.text for remark in log.errors), *log.traceback]
    assert len(kept) == 4
    assert max(map(len, kept)) <= MAX_TEXT
