"""What a real server over two GPUs prints and reports: rank 0 speaks, the others' lines are told apart, both GPUs are read."""

from __future__ import annotations

import pytest

from dflash_console.evidence.engine_log import log_reading
from dflash_console.evidence.gpu import parse_compute_apps, parse_gpus
from dflash_console.evidence.gpu_holders import GpuHolder, Owner, count_ranks, ranks_asked
from dflash_console.evidence.log_lines import read_events
from dflash_console.evidence.metrics_text import parse_metrics
from dflash_console.evidence.server import parse_loads, parse_server_info
from dflash_console.evidence.start_log import Phase
from dflash_console.knobs import KNOBS

from .support import CAPTURES, fold, stored_lines

FOLDER = CAPTURES / "two-gpus"
LINES = stored_lines(FOLDER / "server.log")
OURS = 1809
"""Process id of rank 0 of this server; other servers had the rest of both GPUs."""


def test_the_log_of_both_ranks_proves_the_start_once() -> None:
    start = fold(LINES)
    assert start.ready
    assert not start.errors
    assert set(start.phases) == set(Phase)
    assert {name: log_reading(start, KNOBS[name]).value for name in ("algorithm", "tree_budget", "tree_topk")} == {
        "algorithm": "DDTREE",
        "tree_budget": 16,
        "tree_topk": 4,
    }


def test_only_rank_0_says_how_decoding_goes_and_both_compare_their_trees() -> None:
    read = [one for line in LINES for one in read_events(line)]
    ranks = {text: {one.rank.tp for one in read if text in one.text} for text in ("Decode batch", "tree ranks equal")}
    assert ranks == {"Decode batch": {0}, "tree ranks equal": {0, 1}}


def test_the_reports_are_of_one_server_over_two_gpus() -> None:
    info = parse_server_info((FOLDER / "server_info.json").read_bytes())
    assert (info.algorithm, info.number("tp_size")) == ("DDTREE", 2)
    loads = parse_loads((FOLDER / "loads.json").read_bytes())
    assert (loads.running, loads.accelerators) == (8, 2)
    sample = parse_metrics((FOLDER / "metrics.txt").read_text())
    assert not sample.problem
    assert (sample.running, sample.budget, sample.topk) == (8, 16, 4)
    assert sample.verify_calls == 9244
    assert sample.accept_length == pytest.approx(2.35, abs=0.01)


def test_both_gpus_and_both_ranks_are_found_among_the_other_processes() -> None:
    gpus = parse_gpus((FOLDER / "gpus.csv").read_text())
    assert [(gpu.index, gpu.utilisation, gpu.ecc_errors, gpu.slowed) for gpu in gpus] == [(0, 96, 0, ()), (1, 100, 0, ())]
    processes = parse_compute_apps((FOLDER / "apps.csv").read_text())
    assert len(processes) == 10
    ours = [GpuHolder(one, Owner.OURS, "") for one in processes if one.pid in (OURS, OURS + 1)]
    assert sorted(str(holder.rank) for holder in ours) == ["TP0", "TP1"]
    info = parse_server_info((FOLDER / "server_info.json").read_bytes())
    asked = ranks_asked(info.fields, ())
    assert asked == 2
    assert not count_ranks(ours, asked).short
    assert count_ranks(ours[:1], asked).short
