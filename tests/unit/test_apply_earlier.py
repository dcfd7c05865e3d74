"""The way back from what is written: through the changes that led to it, past those that were never confirmed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from dflash_console.apply.confirmed import ConfirmedConfig, ConfirmedStore
from dflash_console.apply.earlier import earlier_record, kept_changes, last_resort, same_texts, texts_before
from dflash_console.evidence.file_edits import Texts
from dflash_console.hosts.local import LocalTransport
from dflash_console.hosts.service import RunState, Service, ServiceState

UNIT, OURS = "/unit", "/drop-in"
A: Texts = {UNIT: "u", OURS: None}
B: Texts = {UNIT: "u", OURS: "b"}
C: Texts = {UNIT: "u", OURS: "c"}


def wrote(before: Texts, after: Texts) -> tuple[Texts, Texts]:
    """The change as it is kept: only the file that was written."""
    return {OURS: before[OURS]}, {OURS: after[OURS]}


def test_what_was_never_confirmed_goes_back_to_what_was_there_before() -> None:
    found = texts_before(B, [wrote(A, B)], [])
    assert found is not None
    assert same_texts(found, A)


def test_a_failed_change_after_a_failed_change_goes_back_past_both() -> None:
    found = texts_before(C, [wrote(B, C), wrote(A, B)], [])
    assert found is not None
    assert same_texts(found, A)


def test_a_confirmed_configuration_on_the_way_is_where_it_ends() -> None:
    found = texts_before(C, [wrote(B, C), wrote(A, B)], [B])
    assert found is not None
    assert same_texts(found, B)


def test_what_was_rolled_back_is_not_gone_back_to() -> None:
    assert texts_before(A, [wrote(B, A), wrote(A, B)], []) is None


def test_a_roll_back_that_could_not_be_written_does_not_bar_the_way() -> None:
    for found in (
        texts_before(B, [wrote(B, A), wrote(A, B)], []),
        texts_before(C, [wrote(C, A), wrote(B, C), wrote(A, B)], []),
    ):
        assert found is not None
        assert same_texts(found, A)


def test_files_that_no_change_wrote_are_nobodys_to_undo() -> None:
    assert texts_before({UNIT: "u", OURS: "by hand"}, [wrote(A, B)], []) is None
    assert texts_before(A, [], []) is None


def test_what_others_wrote_beside_it_stays() -> None:
    found = texts_before({**B, UNIT: "edited"}, [wrote(A, B)], [])
    assert found is not None
    assert (found[UNIT], found[OURS]) == ("edited", None)


async def test_an_operations_own_roll_back_is_newer_than_the_operation(tmp_path: Path) -> None:
    store = ConfirmedStore(LocalTransport(), cast(Service, SimpleNamespace(keep=str(tmp_path))))
    for operation, (before, after) in {"20261130-1-a": wrote(A, B), "20261130-1-a-back": wrote(B, A)}.items():
        await store.keep_texts(f"{operation}.before", before)
        await store.keep_texts(f"{operation}.planned", after)
    assert await kept_changes(store) == (wrote(B, A), wrote(A, B))


def record(name: str, digest: str, invocation: str) -> ConfirmedConfig:
    return ConfirmedConfig(name, digest, 0.0, invocation, (), "")


FIRST, SECOND, THIRD = record("1", "a", "one"), record("2", "b", "two"), record("3", "c", "three")
RECORDS = (THIRD, SECOND, FIRST)


def unit(state: RunState, invocation: str | None = "three") -> ServiceState:
    return ServiceState("u", state, invocation)


@pytest.mark.parametrize("state", [RunState.RUNNING, RunState.STOPPED, RunState.FAILED])
def test_whether_the_engine_runs_or_not_the_way_back_is_the_confirmed_one_before_the_written_one(
    state: RunState,
) -> None:
    assert earlier_record(RECORDS, "c", unit(state)) is SECOND
    assert earlier_record((record("4", "c", "four"), *RECORDS), "c", unit(state)) is SECOND, "confirmed in two starts"


def test_after_a_roll_back_that_failed_the_next_goes_further_back() -> None:
    assert earlier_record(RECORDS, "b", unit(RunState.FAILED, "four")) is FIRST
    assert earlier_record(RECORDS, "a", unit(RunState.FAILED, "five")) is None
    assert last_resort(RECORDS, "a", unit(RunState.FAILED, "five")) is THIRD


def test_where_a_confirmed_configuration_runs_and_an_older_one_is_written_it_is_the_one_that_runs() -> None:
    assert earlier_record(RECORDS, "a", unit(RunState.RUNNING)) is THIRD


def test_what_was_never_confirmed_comes_after_no_record() -> None:
    assert earlier_record(RECORDS, "d", unit(RunState.FAILED)) is None
    assert last_resort(RECORDS, "d", unit(RunState.FAILED)) is THIRD


def test_the_only_configuration_that_ever_worked_is_started_again_unless_it_runs() -> None:
    assert earlier_record((FIRST,), "a", unit(RunState.FAILED, "two")) is None
    assert last_resort((FIRST,), "a", unit(RunState.FAILED, "two")) is FIRST
    assert last_resort((FIRST,), "a", unit(RunState.RUNNING, "one")) is None
