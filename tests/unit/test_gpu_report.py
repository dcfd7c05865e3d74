"""Eight GPUs beside what their server asks for: which one is bad, why, and what it comes to."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest

from dflash_console.commands.gpu_output import gpus_json, print_gpus
from dflash_console.commands.output import Output
from dflash_console.doctor import CheckStatus
from dflash_console.drift import DriftKind, drift_items, truth_table
from dflash_console.evidence.gpu_faults import Grade
from dflash_console.evidence.gpu_holders import GpuHolder, Owner
from dflash_console.evidence.server import ServerInfo
from dflash_console.gpu_report import gpu_report
from dflash_console.host_checks import judge_gpus
from dflash_console.state import Aged, HostState
from tests.gpu_recordings import gpus, holders, on_eight
from tests.tui.support import state


def seen(rows: str | None = "eight-load", apps: str | None = "apps-eight-ranks") -> HostState:
    return on_eight(state(), rows, apps)


def printed(found: HostState) -> str:
    out = io.StringIO()
    print_gpus(Output(json_wanted=False, stdout=out), found)
    return out.getvalue()


@pytest.mark.parametrize("rows", ["eight-idle", "eight-load"])
def test_eight_healthy_gpus_with_their_ranks_are_no_matter(rows: str) -> None:
    report = gpu_report(seen(rows))
    assert (report.faults, report.faulty, report.kinds, report.memory_each) == ((), 0, "8 × NVIDIA H200", 143771)
    assert [line.ranks for line in report.lines] == [(f"TP{number}",) for number in range(8)]
    check = judge_gpus(seen(rows))
    assert (check.status, check.message) == (CheckStatus.OK, "8 × NVIDIA H200, 8 of 8 ranks, no strangers hold GPU memory")


@pytest.mark.parametrize(
    ("index", "grade", "short", "words"),
    [
        (1, Grade.CAUTION, "slow 94°", "GPU 1 is slowed down (hardware slowdown, hardware thermal slowdown, 94 °C)"),
        (2, Grade.BAD, "ECC 3", "GPU 2 has 3 uncorrected memory errors since the driver was loaded"),
        (3, Grade.CAUTION, "MIG", "GPU 3 is split by MIG"),
        (4, Grade.BAD, "reset", "nvidia-smi --gpu-reset -i 4"),
        (5, Grade.BAD, "lost", "GPU 5 (0000:9B:00.0) cannot be reached: Unknown Error"),
        (6, Grade.CAUTION, "error", "GPU 6: the driver does not tell power, temperature (Unknown Error)"),
        (7, Grade.CAUTION, "stranger", "GPU 7: pid 9021 (python3, train.service), 11058 MiB, is not this unit's"),
    ],
)
def test_each_trouble_is_its_own_gpus(index: int, grade: Grade, short: str, words: str) -> None:
    (fault,) = gpu_report(seen("eight-troubled", "apps-seven-and-a-stranger")).lines[index].faults
    assert (fault.grade, fault.short) == (grade, short)
    assert words in fault.words
    assert len(fault.short) <= 9


def test_the_gravest_troubles_come_first_and_make_the_doctor_fail() -> None:
    found = seen("eight-troubled", "apps-seven-and-a-stranger")
    grades = [fault.grade for fault in gpu_report(found).faults]
    assert grades == sorted(grades, key=lambda grade: grade is not Grade.BAD)
    check = judge_gpus(found)
    assert check.status is CheckStatus.FAILED
    assert check.message.startswith("8 × NVIDIA H200. 7 of 8 ranks hold GPU memory, TP5 does not")


def test_a_gpu_without_its_rank_is_marked_and_the_missing_rank_named() -> None:
    report = gpu_report(seen(apps="apps-seven-ranks"))
    assert [line.row.index for line in report.lines if line.faults] == [5]
    assert report.lines[5].faults[0].short == "no rank"
    assert report.faults[0].words.startswith("7 of 8 ranks hold GPU memory, TP5 does not: the others wait")


def test_a_rank_that_is_missing_is_drift_that_a_restart_mends() -> None:
    assert drift_items(truth_table(seen())) == ()
    (row,) = drift_items(truth_table(seen(apps="apps-seven-ranks")))
    assert (row.kind, row.key) == (DriftKind.RANKS_MISSING, "r")
    assert "7 of 8 ranks" in row.message


def test_ranks_are_judged_of_a_server_that_hangs_and_not_of_one_that_loads() -> None:
    short = seen(apps="apps-seven-ranks")
    hanging = replace(short, ready=False, server=None)
    assert hanging.said_ready
    assert [row.kind for row in drift_items(truth_table(hanging))] == [DriftKind.RANKS_MISSING]
    loading = replace(hanging, log=None)
    assert drift_items(truth_table(loading)) == ()
    assert gpu_report(loading).ranks is None


def test_more_ranks_than_the_driver_lists_gpus_is_said_before_a_start_too() -> None:
    found = replace(seen("seven", None), ready=False, server=None, process=None, log=None)
    (fault,) = gpu_report(found).faults
    assert fault.words.startswith("the command asks for 8 GPUs, the driver lists 7")
    assert judge_gpus(found).status is CheckStatus.FAILED


def test_a_gpu_that_fell_off_the_bus_stays_one_of_eight() -> None:
    report = gpu_report(seen("seven-and-a-line", "apps-seven-ranks"))
    assert report.kinds == "8 × NVIDIA H200"
    assert [fault.short for fault in report.lines[5].faults] == ["lost"]


def test_the_embedded_engine_asks_for_no_gpus() -> None:
    assert gpu_report(replace(seen("seven", "apps-none"), embedded=True)).faults == ()


def test_what_cannot_be_seen_is_a_stranger_only_where_the_units_own_processes_are_seen() -> None:
    hidden = tuple(replace(holder, owner=Owner.UNKNOWN) for holder in holders("apps-eight-ranks"))
    assert gpu_report(replace(seen(), gpu_holders=Aged(hidden, 0.0))).faults == ()
    left = (*holders("apps-eight-ranks"), replace(hidden[0], process=replace(hidden[0].process, pid=9)))
    assert [fault.short for fault in gpu_report(replace(seen(), gpu_holders=Aged(left, 0.0))).faults] == ["stranger"]


def on_four(*more: GpuHolder) -> HostState:
    """The unit has four ranks on eight GPUs, another server has the rest."""
    ranks = holders("apps-eight-ranks")
    others = tuple(replace(holder, owner=Owner.OTHER, words="pid 7 (other)") for holder in ranks[4:])
    found = replace(seen(), gpu_holders=Aged((*ranks[:4], *others, *more), 0.0))
    return replace(found, server=Aged(ServerInfo(version="0.5.17", fields={"tp_size": 4}), 0.0))


def test_who_uses_gpus_that_the_unit_does_not_use_is_no_matter() -> None:
    report = gpu_report(on_four())
    assert report.faults == ()
    assert [line.on_it for line in report.lines] == ["TP0", "TP1", "TP2", "TP3", *["others'"] * 4]
    assert judge_gpus(on_four()).message.endswith("4 of 4 ranks, others hold memory of 4 that it does not use")


def test_before_a_start_everybody_is_in_the_way() -> None:
    others = tuple(replace(holder, owner=Owner.OTHER) for holder in holders("apps-eight-ranks"))
    report = gpu_report(replace(seen(), gpu_holders=Aged(others, 0.0)))
    assert [fault.short for line in report.lines for fault in line.faults] == ["stranger"] * 8


def test_another_servers_dozen_processes_on_a_gpu_are_one_fault() -> None:
    here = holders("apps-eight-ranks")[0]
    crowd = tuple(replace(here, owner=Owner.OTHER, words=f"pid {pid} (other)") for pid in range(12))
    (fault,) = gpu_report(on_four(*crowd)).lines[0].faults
    assert fault.short == "12 others"
    assert fault.words == ("GPU 0: 12 processes are not this unit's: pid 0 (other); pid 1 (other); pid 2 (other); and 9 more")
    assert "TP0, 12 others" in printed(on_four(*crowd))


def test_leftovers_on_the_gpus_of_a_stopped_server_are_named_by_the_doctor() -> None:
    hidden = tuple(replace(holder, owner=Owner.UNKNOWN) for holder in holders("apps-seven-ranks"))
    check = judge_gpus(replace(seen(), gpu_holders=Aged(hidden, 0.0)))
    assert check.status is CheckStatus.WARNING
    assert "not known to be this unit's: pid 41000" in check.message
    assert check.message.endswith("2 more")


@pytest.mark.parametrize("rows", ["eight-idle", "eight-load", "eight-troubled"])
def test_status_has_a_line_for_each_gpu_within_eighty_columns(rows: str) -> None:
    lines = printed(seen(rows)).splitlines()
    table = lines[2:11]
    assert [line.split()[0] for line in table] == ["gpu", *map(str, range(8))]
    assert max(map(len, table)) <= 80
    assert lines[1] == "GPUs: 8 × NVIDIA H200, 140 GiB each; 8 of 8 ranks"


def test_status_puts_the_trouble_beside_its_gpu_and_in_a_sentence_below() -> None:
    text = printed(seen("eight-troubled", "apps-seven-and-a-stranger"))
    row = next(line for line in text.splitlines() if line.startswith("1 "))
    assert row.split()[:2] == ["1", "!"]
    assert row.endswith("TP1, slow 94°")
    assert "✗  GPU 4 requires a reset" in text


def test_a_host_without_a_gpu_has_no_line_of_them() -> None:
    assert printed(replace(seen(), gpus=Aged((), 0.0))) == ""


def test_json_has_every_figure_and_null_for_what_is_not_known() -> None:
    document = json.loads(json.dumps(gpus_json(seen("eight-troubled", "apps-seven-and-a-stranger"))))
    assert [gpu["index"] for gpu in document["gpus"]] == list(range(8))
    assert document["gpus"][0]["processes"] == [
        {"pid": 41000, "name": "sglang::scheduler_TP0", "owner": "unit", "rank": "TP0", "memory_mib": 131834}
    ]
    lost = document["gpus"][5]
    assert (lost["reachable"], lost["utilisation_percent"], lost["memory_used_mib"]) == (False, None, None)
    assert document["ranks"] == {"asked": 8, "seen": 7, "missing": ["TP5"]}
    assert document["gpu_faults"][0]["grade"] == "bad"
    assert gpus_json(seen(None, None))["gpus"] is None, "unknown, not none"


def test_memory_of_unlike_gpus_is_not_called_one_size() -> None:
    rows = (*gpus("one-h200"), replace(gpus("one-h200")[0], index=1, name="NVIDIA H100", memory_total=81559.0))
    report = gpu_report(replace(seen(), gpus=Aged(rows, 0.0)))
    assert (report.memory_each, report.kinds) == (None, "1 × NVIDIA H200, 1 × NVIDIA H100")


def alike(**trouble: object) -> HostState:
    """Eight GPUs that all have the same trouble."""
    rows = tuple(replace(row, **trouble) for row in gpus("eight-load"))  # type: ignore[arg-type]
    return replace(seen(), gpus=Aged(rows, 0.0))


@pytest.mark.parametrize(
    ("trouble", "sentence"),
    [
        ({"mig": True}, "GPUs 0–7 are split by MIG: a rank that counts on the whole GPU gets a part"),
        ({"note": "power: Unknown Error"}, "GPUs 0–7: the driver does not tell power (Unknown Error)"),
        ({"slowed": ("hardware power brake",)}, "GPUs 0–7 are slowed down (hardware power brake), as is each rank"),
        ({"lost": "Unknown Error"}, "GPUs 0–7 cannot be reached: Unknown Error."),
    ],
)
def test_what_all_gpus_have_alike_is_one_sentence_that_names_them(trouble: dict[str, object], sentence: str) -> None:
    found = alike(**trouble)
    (finding,) = [finding for finding in gpu_report(found).findings if finding.words.startswith("GPU")]
    assert finding.words.startswith(sentence)
    assert judge_gpus(found).message.count(sentence) == 1
    assert sentence in printed(found)
    assert len(gpu_report(found).faults) >= 8, "each row has its mark"


def test_only_those_that_have_it_are_named() -> None:
    rows = tuple(replace(row, mig=row.index in (0, 1, 2, 5, 7)) for row in gpus("eight-load"))
    (finding,) = gpu_report(replace(seen(), gpus=Aged(rows, 0.0))).findings
    assert finding.words.startswith("GPUs 0–2, 5, 7 are split by MIG")


def test_processes_that_cannot_be_read_any_more_are_called_old() -> None:
    hangs = "nvidia-smi did not end within 10 s; the GPU driver may hang (dmesg tells)"
    found = replace(seen(), problems={"gpu processes": hangs})
    (finding,) = gpu_report(found).findings
    assert finding.short == "processes old"
    assert finding.words.endswith(f"what is shown of them is old: {hangs}")
    assert "what is shown of them is old" in printed(found)
    assert gpu_report(replace(found, gpu_holders=None)).findings == ()
    (finding,) = gpu_report(replace(found, problems={"gpus": hangs})).findings
    assert finding.words.endswith("what is shown of them is old"), "the reason stands beside the GPUs"
