"""GPU rows from nvidia-smi: a cell that says nothing is unknown, the other GPUs are still there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dflash_console.evidence.gpu import parse_compute_apps, parse_gpus

from .support import CASES


def test_eight_gpus_with_units_and_a_header_are_read() -> None:
    rows = parse_gpus((CASES / "49-nvidia-smi-csv" / "normal8.csv").read_text())
    assert [row.index for row in rows] == list(range(8))
    first = rows[0]
    assert (first.name, first.utilisation, first.memory_used, first.memory_total) == ("NVIDIA H200", 90, 118432, 143771)
    assert (first.power, first.temperature, first.note) == (612.4, 61, "")


def test_cells_that_say_nothing_are_unknown_and_the_reason_is_kept() -> None:
    rows = {row.index: row for row in parse_gpus((CASES / "49-nvidia-smi-csv" / "odd.csv").read_text())}
    assert sorted(rows) == [0, 1, 2, 3, 4]
    assert rows[1].utilisation is None
    assert rows[1].power is None
    assert rows[1].note == "power: Unknown Error"
    assert (rows[2].memory_used, rows[2].memory_total, rows[2].power) == (None, None, 10.51)
    assert rows[3].temperature is None
    assert rows[3].note == "temperature: ERR!"
    assert rows[4].name == "NVIDIA, Corp. Thing"
    assert (rows[4].utilisation, rows[4].power, rows[4].note) == (3, None, "power: GPU requires reset")


def test_processes_are_read_with_names_that_the_driver_does_not_know() -> None:
    apps = parse_compute_apps((CASES / "40-orphan-gpu-processes" / "nvidia-smi-compute-apps.csv").read_text())
    assert [(app.pid, app.name, app.memory) for app in apps] == [
        (2505781, "sglang::scheduler_DP0_TP0_EP0", 100998),
        (2505782, "sglang::scheduler_DP1_TP1_EP1", 101044),
        (41022, "", 69400),
        (4021, "python3", None),
    ]


def test_a_message_in_place_of_rows_gives_none() -> None:
    assert parse_gpus("No devices were found\n") == ()
    assert parse_gpus("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n") == ()


@given(st.text(max_size=120))
def test_no_text_makes_the_reader_fail(text: str) -> None:
    parse_gpus(text)
    parse_compute_apps(text)
