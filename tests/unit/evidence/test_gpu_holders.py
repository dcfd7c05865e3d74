"""Ranks among the processes on the GPUs: which there are, how many there should be, and which one is missing."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from dflash_console.evidence.gpu import GpuProcess
from dflash_console.evidence.gpu_holders import GpuHolder, Owner, count_ranks, ranks_asked
from tests.gpu_recordings import COMMAND, holders

SERVER = "python -m sglang.launch_server --model-path /w/t "


@pytest.mark.parametrize(
    ("title", "rank"),
    [
        ("sglang::scheduler_TP3", "TP3"),
        ("sglang::scheduler", ""),
        ("sglang::scheduler_DP0_TP0_EP0", "DP0 TP0"),
        ("sglang::scheduler_PP1_TP12", "PP1 TP12"),
        ("sglang::scheduler_ATTN_CP0_MOE_DP1_TP2_EP0", "TP2"),
        ("sglang::detokenizer", None),
        ("python3", None),
        ("", None),
    ],
)
def test_a_rank_is_known_by_what_it_calls_itself(title: str, rank: str | None) -> None:
    assert GpuHolder(GpuProcess(7, title, "GPU-a", 1.0), Owner.OURS, "").rank == rank
    assert GpuHolder(GpuProcess(7, "", "GPU-a", 1.0), Owner.OURS, "", title).rank == rank


@pytest.mark.parametrize(
    ("flags", "asked"),
    [
        ("", 1),
        ("--tp 8", 8),
        ("--tensor-parallel-size=8", 8),
        ("--tp-size 4 --pp-size 2", 8),
        ("--tp-size 4 --dp-size 2", 8),
        ("--tp 2 --pp 2 --dp 2", 8),
        ("--tp-size 8 --dp-size 8 --enable-dp-attention", 8),
        ("--tp-size 16 --nnodes 2 --node-rank 1", 8),
    ],
)
def test_ranks_on_a_host_follow_from_the_command_line(flags: str, asked: int) -> None:
    assert ranks_asked({}, shlex.split(SERVER + flags)) == asked


def test_what_the_server_reports_counts_more_than_its_command_line() -> None:
    fields = {"tp_size": 8, "pp_size": 1, "dp_size": 1, "nnodes": 1, "enable_dp_attention": False}
    assert ranks_asked(fields, shlex.split(SERVER + "--tp 4")) == 8
    assert ranks_asked(fields, ()) == 8


def test_how_many_ranks_is_not_known_where_only_the_command_knows_when_it_runs() -> None:
    for flags in ("--tp-size $RANKS", "--tp-size 16 --nnodes ${NODES}", "--tp-size many"):
        assert ranks_asked({}, shlex.split(SERVER + flags)) is None


def test_ranks_in_a_container_are_the_units_where_its_engine_is_in_one() -> None:
    found = tuple(replace(holder, owner=Owner.CONTAINED) for holder in holders("apps-seven-ranks"))
    assert count_ranks(found, 8).missing == ("TP5",)


def test_a_command_that_names_no_engine_asks_for_nothing() -> None:
    assert ranks_asked({}, ("/srv/start.sh",)) is None


def test_all_eight_ranks_are_counted() -> None:
    count = count_ranks(holders("apps-eight-ranks"), ranks_asked({}, COMMAND) or 0)
    assert (count.seen, count.missing, count.short, count.words) == (8, (), False, "8 of 8 ranks")


def test_a_missing_rank_is_named() -> None:
    count = count_ranks(holders("apps-seven-and-a-stranger"), 8)
    assert (count.seen, count.missing, count.short, count.words) == (7, ("TP5",), True, "7 of 8 ranks")


def test_a_server_whose_processes_cannot_be_seen_is_not_called_short() -> None:
    strangers = tuple(replace(holder, owner=Owner.UNKNOWN) for holder in holders("apps-eight-ranks"))
    for seen in ((), strangers):
        count = count_ranks(seen, 8)
        assert (count.seen, count.short) == (None, False)


def test_processes_with_another_name_are_counted_by_the_gpus_that_they_use() -> None:
    plain = [
        replace(holder, title="python3", process=replace(holder.process, name="python3"))
        for holder in holders("apps-seven-ranks")
    ]
    count = count_ranks([*plain, plain[0]], 8)
    assert (count.seen, count.missing) == (7, ())


def test_the_servers_other_processes_on_a_gpu_are_no_ranks() -> None:
    main = GpuHolder(GpuProcess(4021, "python3", "GPU-a", 900.0), Owner.OURS, "")
    assert count_ranks([main, *holders("apps-seven-ranks")], 8).seen == 7
