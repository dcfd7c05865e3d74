"""The operation journal: what a crash leaves is read as far as it is whole, and old journals go while undecided ones stay."""

from __future__ import annotations

import resource
import time
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_console.apply import journal
from dflash_console.apply.journal import (
    JournalError,
    OperationBegin,
    OperationJournal,
    own_identity,
    pending_operations,
    read_pending,
)
from dflash_console.apply.unfinished import hot_wanted
from dflash_console.knobs import AUTO, KNOBS, OFF, Value
from dflash_console.paths import Paths


def paths(folder: Path) -> Paths:
    return Paths(folder / "config", folder / "state", folder / "cache")


def begin(name: str, *, alive: bool = False) -> OperationBegin:
    pid, ticks = own_identity()
    return OperationBegin(name, "apply", "h", "u", "restart", time.time(), pid, ticks if alive else ticks + 1, target="/t")


def written(folder: Path, name: str, *, alive: bool = False) -> OperationJournal:
    made = OperationJournal(paths(folder).operations / f"{name}.jsonl")
    made.begin(begin(name, alive=alive))
    return made


def test_an_operation_without_an_end_whose_console_is_gone_is_pending(tmp_path: Path) -> None:
    made = written(tmp_path, "one")
    made.stage("checks", "running")
    made.stage("checks", "done")
    made.note(backup="/kept/one.before")
    made.stage("write", "running")
    (pending,) = pending_operations(paths(tmp_path))
    assert (pending.stages, pending.running, pending.written) == (("checks",), "write", True)
    assert "was cut off during 'write'" in pending.words


def test_a_record_that_only_fits_in_part_is_not_taken_for_written(tmp_path: Path) -> None:
    made = written(tmp_path, "one")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Like a disk with ten bytes left: the first write takes ten of them.
    resource.setrlimit(resource.RLIMIT_FSIZE, (made.path.stat().st_size + 10, before[1]))
    try:
        with pytest.raises(JournalError, match="cannot be written"):
            made.note(backup="/kept/one.before")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    (pending,) = pending_operations(paths(tmp_path))
    assert pending.stages == ()


@pytest.mark.parametrize("cut", range(1, 40, 7))
def test_a_last_line_that_was_cut_is_a_step_that_had_not_begun(tmp_path: Path, cut: int) -> None:
    made = written(tmp_path, "one")
    made.stage("checks", "done")
    made.stage("write", "running")
    data = made.path.read_bytes()
    made.path.write_bytes(data[:-cut])
    found = read_pending(made.path)
    assert found is not None
    assert found.stages == ("checks",)
    assert found.running == ("write" if cut == 1 else "")


def test_what_is_added_after_a_cut_line_is_read(tmp_path: Path) -> None:
    made = written(tmp_path, "one")
    made.stage("write", "running")
    made.path.write_bytes(made.path.read_bytes()[:-5])
    made.end("confirmed", "")
    assert read_pending(made.path) is None


def test_an_ended_operation_and_one_that_still_runs_are_not_pending(tmp_path: Path) -> None:
    written(tmp_path, "ended").end("confirmed", "")
    written(tmp_path, "running", alive=True)
    assert pending_operations(paths(tmp_path)) == ()


def test_an_operation_that_was_given_up_is_pending_even_while_its_console_lives(tmp_path: Path) -> None:
    written(tmp_path, "given-up", alive=True).note(abandoned=True)
    assert [found.operation_id for found in pending_operations(paths(tmp_path))] == ["given-up"]


def test_operations_of_other_services_are_left_out(tmp_path: Path) -> None:
    written(tmp_path, "one")
    assert len(pending_operations(paths(tmp_path), "h", "u")) == 1
    assert pending_operations(paths(tmp_path), "h", "other") == ()


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"{}\n", b"[]\n", b'{"kind": "stage"}\n', b'{"kind": "begin"}\n'])
def test_a_file_that_is_no_journal_is_no_operation(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(data)
    assert read_pending(path) is None


def test_old_journals_go_and_undecided_ones_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "JOURNALS_KEPT", 3)
    written(tmp_path, "a-undecided")
    for number in range(6):
        written(tmp_path, f"b{number}").end("confirmed", "")
    names = sorted(path.stem for path in paths(tmp_path).operations.iterdir())
    assert names == ["a-undecided", "b3", "b4", "b5"]


@pytest.mark.parametrize(
    ("setting", "old"),
    [
        ("tree_budget", AUTO),
        ("tree_budget", 8),
        ("draft_window", OFF),
        ("draft_window", 512),
        ("speculation", False),
        ("tree_topk", 4),
    ],
)
def test_what_a_cut_off_hot_change_has_replaced_is_read_back_as_it_was(setting: str, old: Value) -> None:
    knob = KNOBS[setting]
    assert knob.hot_name is not None
    cut = replace(begin("op"), mode="hot", settings={setting: 1}, hot_before={knob.hot_name: float(knob.hot_value(old))})
    assert hot_wanted(cut) == {setting: old}
