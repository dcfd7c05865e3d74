"""A drafter that is silently useless raises an alarm, and so does one that is too good."""

from __future__ import annotations

from dflash_console.evidence.acceptance import AcceptanceAlarm, acceptance_finding

from .support import case_lines, fold

LOW = case_lines("27-silent-low-acceptance", "decode.log")
GOOD = case_lines("16-log-decode-variants", "decode_lines.log")
PERFECT = case_lines("27-silent-low-acceptance", "too-good.log")


def test_five_windows_near_one_are_a_collapse() -> None:
    finding = acceptance_finding(fold(LOW).decode, 8)
    assert finding is not None
    assert finding.alarm is AcceptanceAlarm.COLLAPSED
    assert finding.windows == 5
    assert finding.first_line == 3
    assert round(finding.commit_length, 2) == 1.03


def test_four_windows_or_one_good_one_among_them_are_none() -> None:
    assert acceptance_finding(fold(LOW[:4]).decode, 8) is None
    assert acceptance_finding(fold([*LOW[:4], PERFECT[0], LOW[0]]).decode, 8) is None


def test_windows_in_which_nothing_ran_or_nothing_was_drafted_do_not_count() -> None:
    idle = [line.replace("#running-req: 1", "#running-req: 0") for line in LOW]
    plain = [line.replace("accept len: 1.03, accept rate: 0.13, ", "") for line in LOW]
    assert acceptance_finding(fold(idle).decode, 8) is None
    assert acceptance_finding(fold([*plain[:1]] * 9).decode, 8) is None


def test_every_draft_accepted_for_many_windows_is_worth_a_word() -> None:
    finding = acceptance_finding(fold(PERFECT).decode, 16, perfect_windows=4)
    assert finding is not None
    assert finding.alarm is AcceptanceAlarm.PERFECT
    assert acceptance_finding(fold(PERFECT).decode, 17, perfect_windows=4) is None
    assert acceptance_finding(fold(PERFECT).decode, None, perfect_windows=4) is None
    assert acceptance_finding(fold(GOOD).decode, 16) is None


def test_one_data_parallel_rank_that_has_collapsed_is_not_hidden_by_the_others() -> None:
    good = [line.replace("TP0", "DP0 TP0").replace("accept len: 1.0", "accept len: 4.0") for line in LOW]
    low = [line.replace("TP0", "DP1 TP1") for line in LOW]
    finding = acceptance_finding(fold([line for pair in zip(good, low, strict=True) for line in pair]).decode, 8)
    assert finding is not None
    assert (finding.alarm, finding.rank) == (AcceptanceAlarm.COLLAPSED, 1)
    assert "over the newest 5 decode lines of DP1 (from log line 6)" in finding.words
    assert acceptance_finding(fold(good).decode, 8) is None
    alone = acceptance_finding(fold(low).decode, 8)
    assert alone is not None
    assert alone.rank is None
