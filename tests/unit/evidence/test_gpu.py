"""GPU rows from nvidia-smi: a cell that says nothing is unknown, a GPU that cannot be reached is a row too."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_console.evidence.gpu import QUERY, parse_compute_apps, parse_gpus
from dflash_console.evidence.secrets import MASK
from tests.gpu_recordings import gpus, text

from .support import CASES


def test_eight_gpus_with_units_and_a_header_are_read() -> None:
    rows = parse_gpus((CASES / "49-nvidia-smi-csv" / "normal8.csv").read_text())
    assert [row.index for row in rows] == list(range(8))
    first = rows[0]
    assert (first.name, first.utilisation, first.memory_used, first.memory_total) == ("NVIDIA H200", 90, 118432, 143771)
    assert (first.power, first.temperature, first.note) == (612.4, 61, "")
    assert (first.slowed, first.ecc_errors, first.mig) == ((), None, None), "columns that an older recording does not have"


def test_cells_that_say_nothing_are_unknown_and_the_reason_is_kept() -> None:
    rows = {row.index: row for row in parse_gpus((CASES / "49-nvidia-smi-csv" / "odd.csv").read_text())}
    assert sorted(index for index in rows if index is not None) == [0, 1, 2, 3, 4]
    assert rows[1].utilisation is None
    assert rows[1].power is None
    assert rows[1].note == "power: Unknown Error"
    assert (rows[2].memory_used, rows[2].memory_total, rows[2].power) == (None, None, 10.51)
    assert rows[3].temperature is None
    assert rows[3].note == "temperature: ERR!"
    assert rows[4].name == "NVIDIA, Corp. Thing"
    assert (rows[4].utilisation, rows[4].power, rows[4].note) == (3, None, "power: GPU requires reset")
    assert rows[4].needs_reset


def test_a_real_h200_is_read_in_every_column() -> None:
    (row,) = gpus("one-h200")
    assert (row.utilisation, row.memory_used, row.memory_total, row.power, row.temperature) == (0, 0, 143771, 78.53, 38)
    assert (row.slowed, row.ecc_errors, row.mig, row.lost, row.needs_reset) == ((), 0, False, "", False)


@pytest.mark.parametrize("column", ["clocks_event_reasons.active", "clocks_throttle_reasons.active"])
def test_the_reasons_of_a_slowdown_are_read_under_both_of_their_names(column: str) -> None:
    (row,) = parse_gpus(f"index, uuid, {column}\n0, GPU-a, 0x00000000000000a8\n")
    assert row.slowed == ("hardware slowdown", "software thermal slowdown", "hardware power brake")
    (row,) = parse_gpus(f"index, uuid, {column}\n0, GPU-a, 0x0000000000000005\n")
    assert row.slowed == (), "idle and the power cap are in order"


def test_without_a_header_the_columns_are_those_that_were_asked_for() -> None:
    cells = dict(zip(QUERY, ("3", "GPU-a", "H", "9 %", "1 MiB", "2 MiB", "3 W", "40", "0x08", "7", "Enabled"), strict=True))
    (row,) = parse_gpus(", ".join(cells.values()))
    assert (row.index, row.temperature, row.slowed, row.ecc_errors, row.mig) == (3, 40, ("hardware slowdown",), 7, True)


def test_each_trouble_of_eight_is_read_from_its_own_row() -> None:
    rows = gpus("eight-troubled")
    assert [row.index for row in rows] == list(range(8))
    assert rows[0] == gpus("eight-troubled")[0]
    assert rows[1].slowed == ("hardware slowdown", "hardware thermal slowdown")
    assert rows[2].ecc_errors == 3
    assert (rows[3].mig, rows[3].utilisation, rows[3].note) == (True, None, "")
    assert (rows[4].needs_reset, rows[4].note) == (True, "utilization, power, temperature: GPU requires reset")
    assert (rows[5].lost, rows[5].bus) == ("Unknown Error", "0000:9B:00.0")
    assert rows[6].note == "power, temperature: Unknown Error"
    assert [row.index for row in rows if row.lost or row.needs_reset or row.slowed or row.ecc_errors or row.mig] == [
        1,
        2,
        3,
        4,
        5,
    ]


def test_a_row_that_says_that_its_gpu_is_lost_has_no_figures() -> None:
    lost = [row for row in gpus("eight-one-lost") if row.lost]
    assert [(row.index, row.lost, row.memory_used) for row in lost] == [(2, "GPU is lost", None)]


@pytest.mark.parametrize(
    ("line", "index", "bus", "why"),
    [
        ("Unable to determine the device handle for GPU1: 0000:9B:00.0: Unknown Error", 1, "0000:9B:00.0", "Unknown Error"),
        ("Unable to determine the device handle for GPU0000:9B:00.0: Unknown Error", 2, "0000:9B:00.0", "Unknown Error"),
        ("Unable to determine the device handle for GPU 00000000:9B:00.0: GPU is lost.", 2, "00000000:9B:00.0", "GPU is lost."),
        ("Unable to determine the device handle for gpu 0000:9b:00.0: ", 2, "0000:9b:00.0", "no reason given"),
    ],
)
def test_every_form_of_the_line_for_a_gpu_that_cannot_be_reached_is_a_row(line: str, index: int, bus: str, why: str) -> None:
    others = [f"{number}, GPU-{number}, NVIDIA H200, 1 %" for number in range(4) if number != index]
    rows = parse_gpus("\n".join((*others, line)))
    assert [row.index for row in rows] == [0, 1, 2, 3]
    assert (rows[index].bus, rows[index].lost) == (bus, why)


def test_a_lost_gpu_gets_the_number_that_no_row_has_only_where_one_is_left() -> None:
    assert [row.index for row in gpus("seven-and-a-line")] == list(range(8))
    (alone,) = parse_gpus(text("none-but-a-line.txt"))
    assert (alone.index, alone.called) == (None, "the GPU at 0000:9B:00.0")
    assert alone.lost == "GPU is lost.  Reboot the system to recover this GPU"


def test_a_quotation_mark_in_a_message_swallows_no_rows() -> None:
    rows = parse_gpus('WARNING: "infoROM is corrupted\n0, GPU-a, NVIDIA H200, 1 %\n1, GPU-b, NVIDIA H200, 2 %\n')
    assert [row.utilisation for row in rows] == [1, 2]


def test_a_decimal_comma_moves_no_column() -> None:
    told = text("eight-load.csv")
    commas = re.sub(r"(\d)\.(\d+ W)", r"\1,\2", told)
    assert commas != told
    assert parse_gpus(commas) == parse_gpus(told)
    assert parse_gpus(commas.replace(", ", ",")) == parse_gpus(told)


def test_processes_are_read_with_names_that_the_driver_does_not_know() -> None:
    apps = parse_compute_apps((CASES / "40-orphan-gpu-processes" / "nvidia-smi-compute-apps.csv").read_text())
    assert [(app.pid, app.name, app.memory) for app in apps] == [
        (2505781, "sglang::scheduler_DP0_TP0_EP0", 100998),
        (2505782, "sglang::scheduler_DP1_TP1_EP1", 101044),
        (41022, "", 69400),
        (4021, "python3", None),
    ]


def test_a_process_that_calls_itself_by_its_command_line_shows_no_secret_and_moves_no_cursor() -> None:
    name = "train.py --api-key sk-12345678 --layers 1, 2\x1b]0;title\x07\x1b[2J"
    (app,) = parse_compute_apps(f"4021, {name}, GPU-a, 512 MiB\n")
    assert (app.pid, app.gpu_uuid, app.memory) == (4021, "GPU-a", 512)
    assert app.name == f"train.py --api-key {MASK} --layers 1, 2"


def test_no_escape_of_the_tools_output_is_kept() -> None:
    rows = parse_gpus(
        "0, GPU-a, \x1b[31mH200, [Unknown\x1b[2J Error]\nUnable to determine the device handle for GPU0000:9B:00.0: \x1b[2Jno\n"
    )
    assert not any("\x1b" in f"{row.name}{row.note}{row.lost}" for row in rows)
    assert [row.lost for row in rows] == ["", "no"]


def test_figures_that_cannot_be_are_unknown() -> None:
    (row,) = parse_gpus("0, GPU-a, NVIDIA H200, -1 %, -5 MiB, 9 MiB, -3 W, -4, 0x0, -3, Disabled\n-1, GPU-b, NVIDIA H200, 1 %\n")
    assert (row.utilisation, row.memory_used, row.power, row.ecc_errors) == (None, None, None, None)
    assert row.temperature == -4, "a host may be that cold"
    assert parse_compute_apps("-7, python, GPU-a, 1 MiB\n0, python, GPU-a, 1 MiB\n") == ()


def test_columns_in_another_order_are_read_by_their_names() -> None:
    (row,) = parse_gpus("name, temperature.gpu, index, utilization.gpu [%]\nNVIDIA H200, 61, 3, 90 %\n")
    assert (row.index, row.name, row.utilisation, row.temperature, row.memory_used) == (3, "NVIDIA H200", 90.0, 61.0, None)
    (app,) = parse_compute_apps("used_gpu_memory [MiB], pid\n5 MiB, 7\n")
    assert (app.pid, app.memory) == (7, 5.0)
    assert [app.name for app in parse_compute_apps("7, pid, GPU-a, 5 MiB\n8, x, GPU-a, 5 MiB\n")] == ["pid", "x"]


@pytest.mark.parametrize(
    ("cells", "figures"),
    [
        ("91 %, 115.5 GiB, 143771 MiB, 0.61 kW, 61 C", (91.0, 118272.0, 143771.0, 610.0, 61.0)),
        ("91, 118432, 143771, 612400 mW, 61", (91.0, 118432.0, 143771.0, 612.4, 61.0)),
        ("91 MiB, 118432 W, 5 EB, 612 %, 142 F", (None, None, None, None, None)),
        ("4294967295 %, -, nan, N/A W, inf", (None, None, None, None, None)),
    ],
)
def test_a_figure_in_another_unit_is_converted_or_unknown(cells: str, figures: tuple[float | None, ...]) -> None:
    (row,) = parse_gpus(f"0, GPU-a, NVIDIA H200, {cells}\n")
    assert (row.utilisation, row.memory_used, row.memory_total, row.power, row.temperature) == figures
    assert bool(row.note) is ("EB" in cells or "4294967295" in cells)


def test_a_message_in_place_of_rows_gives_none() -> None:
    assert parse_gpus("No devices were found\n") == ()
    assert parse_gpus("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n") == ()
    assert parse_gpus(text("refused.txt")) == ()


@given(st.text(max_size=120))
def test_no_text_makes_the_reader_fail(text: str) -> None:
    parse_gpus(text)
    parse_compute_apps(text)


@given(st.lists(st.sampled_from("0123456789abcdef,.[]%:W \nGPU\"'x"), max_size=60).map("".join), st.integers(0, 7))
def test_what_stands_among_the_rows_changes_none_of_them(noise: str, at: int) -> None:
    rows = text("eight-load.csv").splitlines()
    noise = "\n".join(f"# {line}" for line in noise.splitlines())
    assert parse_gpus("\n".join((*rows[: at + 1], noise, *rows[at + 1 :]))) == gpus("eight-load")


def test_a_reason_in_the_place_of_a_processs_name_is_no_name() -> None:
    text = "88, [Insufficient Permissions], GPU-a, 5 MiB\n89, [Not Found], GPU-a, 5 MiB\n90, [kworker], GPU-a, 5 MiB\n"
    assert [process.name for process in parse_compute_apps(text)] == ["", "", "[kworker]"]
