"""The way back from what is written: through the changes that led to it, past those that were never confirmed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

from dflash_console.apply.confirmed import ConfirmedStore
from dflash_console.apply.earlier import kept_changes, same_texts, texts_before
from dflash_console.evidence.file_edits import Texts
from dflash_console.hosts.local import LocalTransport
from dflash_console.hosts.service import Service

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
