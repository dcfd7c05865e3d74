"""Every wording of a log line is read by its keys."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_console.evidence.log_events import (
    NO_RANK,
    AccessLine,
    DDTreeWorker,
    DecodeBatch,
    DraftRunner,
    EngineWarning,
    ErrorLine,
    FirstVerify,
    GraphCapture,
    HotChange,
    KvPool,
    LoadWeight,
    ModelPart,
    Other,
    PrefillBatch,
    Rank,
    Ready,
    SchedulerSummary,
    ServerArgsLine,
    TracebackStart,
    WarningKind,
)
from dflash_console.evidence.log_lines import read_event, read_events
from dflash_console.evidence.terminal_text import Progress

from .support import CAPTURES, CASES, case_lines, stored_lines


def test_sixteen_decode_line_shapes_give_the_expected_figures() -> None:
    expected = json.loads((CASES / "16-log-decode-variants" / "expected.json").read_text())
    lines = case_lines("16-log-decode-variants", "decode_lines.log")
    assert len(lines) == len(expected)
    for line, wanted in zip(lines, expected, strict=True):
        (read,) = read_events(line)
        batch = read.event
        assert isinstance(batch, DecodeBatch), line
        found = {
            "running": batch.running,
            "gen": batch.throughput,
            "queue": batch.queued,
            "accept_len": batch.accept_len,
            "accept_rate": batch.accept_rate,
            "graph": None if batch.graph is None else str(batch.graph),
            "dp": None if read.rank.dp is None else str(read.rank.dp),
            "tp": None if read.rank.tp is None else str(read.rank.tp),
        }
        assert found == wanted, line


def test_tokens_and_usage_of_hybrid_models_are_those_of_the_full_attention_layers() -> None:
    batches = [read_event(line) for line in case_lines("16-log-decode-variants", "decode_lines.log")]
    figures = [(batch.tokens, batch.token_usage) for batch in batches if isinstance(batch, DecodeBatch)]
    assert figures[8:10] == [(1190, 0.03), (40110, 0.22)]
    assert figures[0] == (311, 0.0)
    assert isinstance(batches[7], DecodeBatch)
    assert batches[7].iteration == 48213


def test_prefill_lines_of_all_shapes_are_read_and_a_foreign_line_is_not_one() -> None:
    *prefills, foreign = case_lines("16-log-decode-variants", "prefill_lines.log")
    events = [read_event(line) for line in prefills]
    assert [event.new_tokens for event in events if isinstance(event, PrefillBatch)] == [1, 2192, 1, 64]
    assert [event.cached_tokens for event in events if isinstance(event, PrefillBatch)] == [21, 35, 0, 10048]
    assert all(isinstance(event, PrefillBatch) and event.from_idle for event in events)
    assert not isinstance(read_event(foreign), PrefillBatch)


def test_a_decode_line_behind_a_progress_bar_is_still_read() -> None:
    line = case_lines("17-log-progress-cr", "stdout.raw")[0]
    bar, decode = read_events(line)
    assert isinstance(bar.event, Progress)
    assert isinstance(decode.event, DecodeBatch)
    assert decode.event.accept_len == 3.10
    assert isinstance(read_event(line), DecodeBatch)


@pytest.mark.parametrize(
    ("prefix", "rank"),
    [
        ("[2026-02-01 10:00:00 DP0 PP1 ATTN_CP2 MOE_DP3 TP4 EP5]", Rank(dp=0, tp=4, ep=5, pp=1)),
        ("[2026-02-01 10:00:00 ATTN_CP2 MOE_DP3]", NO_RANK),
        ("Feb  1 10:00:00 gpu-a sglang[4711]: [2026-02-01 10:00:00 TP0]", Rank(tp=0)),
        ("sglang[4711]: [2026-02-01 10:00:00 TP0]", Rank(tp=0)),
        ("[pod/sgl-0/sglang] [2026-02-01 10:00:00 TP0]", Rank(tp=0)),
        ("[rank0]: [2026-02-01 10:00:00 TP0]", Rank(tp=0)),
        ("gpu-a: [2026-02-01 10:00:00 TP0]", Rank(tp=0)),
        ("[2026-02-01T10:00:00Z TP0]", Rank(tp=0)),
        ("2026-02-01T11:00:00.123456789+01:00 stderr F [2026-02-01 10:00:00 TP0]", Rank(tp=0)),
        ("2026-02-01T11:00:00.123+01:00 gpu-a python3[4021]: [2026-02-01 10:00:00 TP0]", Rank(tp=0)),
    ],
)
def test_whatever_a_collector_puts_in_front_a_decode_line_is_read(prefix: str, rank: Rank) -> None:
    (read,) = read_events(f"{prefix} Decode batch. #running-req: 3, gen throughput (token/s): 250.31")
    assert isinstance(read.event, DecodeBatch)
    assert (read.event.running, read.event.throughput, read.rank, read.stamp) == (3, 250.31, rank, "2026-02-01 10:00:00")


@pytest.mark.parametrize(
    "prefix",
    [
        "INFO 02-01 10:00:00 scheduler.py:120] ",
        "2026-02-01 10:00:00,123 - sglang.srt.managers.scheduler - INFO - ",
        "[2026-02-01 10:00:00 TP0] [INFO] ",
        "(TP0) [2026-02-01 10:00:00] ",
        "",
    ],
)
def test_a_line_of_another_logging_configuration_is_read(prefix: str) -> None:
    event = read_event(f"{prefix}Decode batch. #running-req: 3, gen throughput (token/s): 250.31")
    assert isinstance(event, DecodeBatch)
    assert (event.running, event.throughput) == (3, 250.31)
    prefill = read_event(f"{prefix}Prefill batch, #new-seq: 1, #running-req: 0")
    assert isinstance(prefill, PrefillBatch)


SAID = (
    "Decode batch. #running-req: 3, gen throughput (token/s): 250.31",
    "Initialized DDTREE draft runner. tree_budget=16, draft_window_size=512",
    "Initialized DDTree worker. tree_budget=24",
    "The server is fired up and ready to roll!",
    "Hot change applied. speculative_ddtree_budget: 8 -> 16 (from x)",
    "server_args=ServerArgs(speculative_algorithm=None)",
    "Traceback (most recent call last):",
    "ERROR: CUDA out of memory",
    "--speculative-draft-window-size has no effect",
)


@pytest.mark.parametrize("said", SAID)
def test_what_a_request_says_is_never_taken_for_the_engines_word(said: str) -> None:
    for quoting in (f"Receive: obj=GenerateReqInput(text='x {said}', rid=1)", f'Finish: obj=G(text="it is {said}"), out={{}}'):
        assert isinstance(read_event(f"[2026-02-01 10:00:00 TP0] {quoting}"), Other)
    if "ERROR" not in said and "no effect" not in said:
        assert isinstance(read_event(f"[2026-02-01 10:00:00] a user's prompt was '{said}'"), Other)
    assert not isinstance(read_event(f"[2026-02-01 10:00:00] the engine's word: {said}"), Other) or said.startswith("Decode")


def test_a_number_that_is_grouped_or_has_a_decimal_comma_is_unknown_and_not_its_beginning() -> None:
    event = read_event("Decode batch. #running-req: 3, accept len: 4,25, gen throughput (token/s): 1,250.31, #queue-req: 0")
    assert isinstance(event, DecodeBatch)
    assert (event.running, event.accept_len, event.throughput, event.queued) == (3, None, None, 0)


@pytest.mark.parametrize(
    "text",
    [
        "--speculative-draft-window-size is ignored with DDTREE",
        "Ignoring --speculative-draft-window-size for this algorithm",
        "WARNING: speculative_draft_window_size will be ignored",
        "--speculative-draft-window-size=2048 has no effect",
    ],
)
def test_a_flag_that_is_ignored_is_known_by_any_wording(text: str) -> None:
    event = read_event(f"[2026-02-01 10:00:00] {text}")
    assert isinstance(event, EngineWarning)
    assert (event.kind, event.flag) == (WarningKind.NO_EFFECT, "--speculative-draft-window-size")


def test_a_confirmation_line_in_brackets_or_with_grouped_numbers_gives_no_half_values() -> None:
    event = read_event("Initialized DFLASH draft runner (block_size=16,tree_budget=24, draft_window_size=2,048, layers=[1, 2])")
    assert isinstance(event, DraftRunner)
    assert dict(event.values) == {
        "block_size": "16",
        "tree_budget": "24",
        "draft_window_size": "2,048",
        "layers": "[1, 2]",
    }


def test_a_coloured_line_is_read_like_a_plain_one() -> None:
    line = "\x1b[33m[2026-07-23 06:18:53 TP0] DFLASH block size mismatch: using speculative_num_draft_tokens=8 but …\x1b[0m"
    event = read_event(line)
    assert isinstance(event, EngineWarning)
    assert event.kind is WarningKind.BLOCK_MISMATCH


def test_the_confirmation_line_is_read_in_every_wording_and_keeps_unknown_keys() -> None:
    lines = case_lines("23-dflash-confirmation-variants", "variants.log")
    first, tree, ours, ring, off = (read_event(lines[i]) for i in (0, 2, 3, 4, 5))
    assert isinstance(first, DraftRunner)
    assert (first.algorithm, first.values["draft_window_size"], first.values["compact_cache"]) == ("DFLASH", "2048", "True")
    assert isinstance(tree, DDTreeWorker)
    assert tree.values["tree_budget"] == "24"
    assert isinstance(ours, DraftRunner)
    assert ours.algorithm == "DDTREE"
    assert isinstance(ring, DraftRunner)
    assert ring.values == {"compact_cache": "True", "draft_kv_ring": "True", "block_size": "8", "ring_size": "528"}
    assert isinstance(off, DraftRunner)
    assert off.values["draft_window_size"] == "None"


def test_an_automatic_budget_in_a_confirmation_line_keeps_its_bound() -> None:
    event = read_event("Initialized DDTREE draft runner. tree_budget=auto(max 64), tree_topk=4, compact_cache=False")
    assert isinstance(event, DraftRunner)
    assert event.values["tree_budget"] == "auto(max 64)"
    assert event.values["tree_topk"] == "4"


def test_lists_in_a_confirmation_line_stay_in_their_value() -> None:
    event = read_event("Initialized DDTree v2 worker. block_size=8, graph_buckets=[8, 12, 16], prune=True, tree_budget=24")
    assert isinstance(event, DDTreeWorker)
    assert event.values == {"block_size": "8", "graph_buckets": "[8, 12, 16]", "prune": "True", "tree_budget": "24"}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("[x] Load weight begin. avail mem=139.13 GB", LoadWeight(False)),
        (
            "Load weight end. elapsed=0.14 s, type=Qwen3ForCausalLM, avail mem=139.10 GB, mem usage=0.03 GB.",
            LoadWeight(True, ModelPart.TARGET, "Qwen3ForCausalLM", 0.14, 0.03),
        ),
        (
            "Load weight end. elapsed=9.00 s, type=DFlashDraftModel, quant=none, avail mem=1.00 GB, mem usage=6.48 GB.",
            LoadWeight(True, ModelPart.DRAFT, "DFlashDraftModel", 9.0, 6.48),
        ),
        (
            "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 512, K size: 1.50 GB, V size: 1.50 GB",
            KvPool(512, "torch.bfloat16", 3.0),
        ),
        (
            "KV Cache is allocated. dtype: torch.float8_e4m3fn, #tokens: 9, KV size: 2.25 GB",
            KvPool(9, "torch.float8_e4m3fn", 2.25),
        ),
        ("Capture cuda graph begin. This can take up to several minutes. avail mem=30.12 GB", GraphCapture(False)),
        ("Capture cuda graph end. Time elapsed: 12.40 s. mem usage=1.88 GB. avail mem=28.24 GB.", GraphCapture(True, "", 12.4)),
        ("Capture target verify CUDA graph end. elapsed=2.34 s, mem usage=0.04 GB", GraphCapture(True, "target verify", 2.34)),
        ("The server is fired up and ready to roll!", Ready()),
        ("DDTREE verify completed. accept_length_per_req=[3]", FirstVerify("DDTREE", "accept_length_per_req=[3]")),
        ("DDTREE v2 verify completed. first commit_lens=[2, 3]", FirstVerify("DDTREE", "first commit_lens=[2, 3]")),
        (
            "Hot change applied. speculative_ddtree_budget: 8 -> 16 (from /set_internal_state)",
            HotChange("speculative_ddtree_budget", "8", "16", True),
        ),
        (
            "Hot change refused. speculation: 1 -> 7 (from /set_internal_state): takes 0 or 1",
            HotChange("speculation", "1", "7", False, "takes 0 or 1"),
        ),
        ('INFO:     127.0.0.1:1 - "POST /generate HTTP/1.1" 200 OK', AccessLine("POST", "/generate", 200)),
        (
            "Scheduler hit an exception: Traceback (most recent call last):",
            TracebackStart("Scheduler hit an exception: Traceback (most recent call last):"),
        ),
        ("nothing in particular", Other("nothing in particular")),
    ],
)
def test_a_line_tells_its_event(line: str, expected: object) -> None:
    assert read_event(line.removeprefix("[x] ")) == expected
    assert read_event("[2026-07-23 06:18:53 TP0] " + line.removeprefix("[x] ")) == expected


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("WARNING: --speculative-draft-window-size has no effect with speculative_algorithm=DDTREE", WarningKind.NO_EFFECT),
        (
            "DFLASH non-greedy verification is unavailable on this build/device; falling back to greedy argmax verification.",
            WarningKind.GREEDY_FALLBACK,
        ),
        (
            "DFLASH draft worker only supports attention_backend in ['fa3'], got x. Falling back to 'triton'.",
            WarningKind.BACKEND_FALLBACK,
        ),
        ("Disable DFLASH draft cuda graph because only 0.20 GB of memory is left", WarningKind.GRAPH_SKIPPED),
        ("Max running requests is reset to 48 for speculative decoding. You can override it.", WarningKind.REQUEST_CAP),
    ],
)
def test_warnings_that_change_what_a_measurement_means_are_told_apart(text: str, kind: WarningKind) -> None:
    event = read_event(f"[2026-07-12 05:10:44] {text}")
    assert isinstance(event, EngineWarning)
    assert event.kind is kind
    if kind is WarningKind.NO_EFFECT:
        assert event.flag == "--speculative-draft-window-size"


@pytest.mark.parametrize(
    "text",
    [
        "ValueError: no such drafter",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
        "[2026-01-01 00:00:00] ERROR something broke",
        "ddtree-launch: error: port 30000 is in use",
        "Capture cuda graph failed: out of memory",
        "Subprocess scheduler_0 (pid=9) crashed with exit code 1.",
    ],
)
def test_errors_are_told_from_other_lines(text: str) -> None:
    assert isinstance(read_event(text), ErrorLine)


def test_the_arguments_line_is_read_whole_and_its_keys_are_masked() -> None:
    event = read_event(
        "[2026-11-29 13:42:21] server_args=ServerArgs(a='x, y', b=[1, (2, 3)], api_key='sk-1', n=None, d={'k': 1, 'l': 2})"
    )
    assert isinstance(event, ServerArgsLine)
    assert event.settings == {"a": "x, y", "b": "[1, (2, 3)]", "api_key": "******", "n": "None", "d": "{'k': 1, 'l': 2}"}


def test_the_recorded_arguments_line_of_20_kilobytes_gives_every_setting() -> None:
    line = next(line for line in stored_lines(CAPTURES / "dflash.log") if "server_args=" in line)
    event = read_event(line)
    assert isinstance(event, ServerArgsLine)
    assert event.settings["speculative_draft_window_size"] == "64"
    assert event.settings["context_length"] == "None"
    assert len(event.settings) > 400


def test_the_scheduler_line_gives_its_limits() -> None:
    event = read_event("max_total_num_tokens=6463229, max_running_requests=4, context_len=8192, available_cpu_mem=110.53 GB")
    assert isinstance(event, SchedulerSummary)
    assert event.values["max_running_requests"] == "4"
    assert event.values["context_len"] == "8192"


@given(st.text(max_size=200))
def test_no_text_makes_the_reader_fail(text: str) -> None:
    read_events(text)
    read_event("[2026-07-23 06:18:53 TP0] Decode batch, " + text)
    read_event("Initialized DDTREE draft runner. " + text)
    read_event("server_args=ServerArgs(" + text)


COUNTS = st.integers(0, 10**7)
FIGURES = st.decimals(0, 10_000, places=2)


@given(
    running=COUNTS, queued=COUNTS, accept=FIGURES, speed=FIGURES, order=st.randoms(use_true_random=False), unknown=st.booleans()
)
def test_a_decode_line_reads_the_same_with_its_keys_in_any_order(
    running: int, queued: int, accept: object, speed: object, order: random.Random, unknown: bool
) -> None:
    parts = [
        f"#running-req: {running}",
        f"#queue-req: {queued}",
        f"accept len: {accept}",
        "cuda graph: True",
        f"gen throughput (token/s): {speed}",
        *(["some new key: 7"] if unknown else []),
    ]
    order.shuffle(parts)
    event = read_event("[2026-07-23 06:18:53 DP1 TP1] Decode batch [77], " + ", ".join(parts))
    assert event == DecodeBatch(
        running=running, queued=queued, accept_len=float(str(accept)), graph=True, throughput=float(str(speed)), iteration=77
    )
