"""Readers never raise, whatever an engine, a proxy or a broken disk puts in the place of an answer."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_console.evidence.engine_log import StartLog, log_reading
from dflash_console.evidence.gpu import parse_compute_apps, parse_gpus
from dflash_console.evidence.journal import LogLine, parse_record
from dflash_console.evidence.metrics import parse_metrics
from dflash_console.evidence.process import parse_process
from dflash_console.evidence.server import (
    compact_cache_in_effect,
    in_effect_reading,
    parse_loads,
    parse_server_info,
    server_reading,
)
from dflash_console.evidence.values import read_json, whole
from dflash_console.hosts.process_log import read_line
from dflash_console.knobs import KNOBS

LONG = "9" * 5000
ODD_VALUES = ["Infinity", "-Infinity", "NaN", "1e999", '"x"', "null", "[]", "{}", "true", LONG, "-1", '"²"']
NO_ANSWERS = [b"[" * 100_000, b'{"a":' * 100_000, LONG.encode(), b"\xff\xfe", b"null", b"[]", b'""', b"", b"<html>busy</html>"]
FIELDS = {name for knob in KNOBS.values() for name in (*knob.server_fields, *knob.internal_fields)}
FIELDS |= {"compact_cache", "draft_kv_bytes", "spec_accept_histogram", "verify_curve", "version", "engine", "api_key"}


def read_everything(data: bytes) -> None:
    info = parse_server_info(data)
    assert info.engine_name
    assert info.hot_knobs() <= set(KNOBS)
    info.number("draft_kv_bytes")
    compact_cache_in_effect(info)
    for knob in KNOBS.values():
        in_effect_reading(info, knob)
        server_reading(info, knob)
    parse_loads(data)
    parse_record(data)
    read_line(data)


@pytest.mark.parametrize("data", NO_ANSWERS, ids=lambda data: data[:8].decode("latin-1") or "empty")
def test_what_is_no_answer_is_a_problem_in_words(data: bytes) -> None:
    assert parse_server_info(data).problem
    assert parse_loads(data).problem or data == b"[]"
    read_everything(data)


@pytest.mark.parametrize("value", ODD_VALUES, ids=lambda value: value[:12])
def test_an_answer_with_any_value_in_any_place_is_read(value: str) -> None:
    inner = "{" + ",".join(f'"{name}":{value}' for name in sorted(FIELDS)) + "}"
    read_everything(f'{{"engine":"embedded","startup_settings":{inner},"internal_states":[{inner}],{inner[1:]}'.encode())
    names = ("num_running_reqs", "num_waiting_reqs", "num_used_tokens", "num_reqs", "num_tokens", "token_usage", "gen_throughput")
    load = "{" + ",".join(f'"{name}":{value}' for name in names) + f',"speculative":{{"accept_length":{value}}}}}'
    read_everything(f'{{"loads":[{load}],"num_accelerators":{value}}}'.encode())
    read_everything(f"[{load}]".encode())
    journal = ("MESSAGE", "__CURSOR", "__REALTIME_TIMESTAMP", "_SYSTEMD_INVOCATION_ID", "_PID", "PRIORITY", "LINE_OF_START")
    record = ",".join(f'"{name}":{value}' for name in journal)
    line = read_line(f'{{"SYSLOG_IDENTIFIER":"engine",{record}}}'.encode())
    assert line is None or isinstance(line.text, str)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
KEYS = st.sampled_from(sorted(FIELDS | {"internal_states", "loads"}))


@given(st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5)))
def test_any_json_is_read(document: object) -> None:
    read_everything(json.dumps(document).encode())


@pytest.mark.parametrize(
    "line",
    [
        f"Decode batch [{LONG}]. #running-req: 1e999, #token: {LONG}, accept len: 1e999, gen throughput (token/s): {LONG}",
        f"[2026-01-01 00:00:00 TP{LONG}] Decode batch. #running-req: 1",
        f"KV Cache is allocated. dtype: x, #tokens: {LONG}, K size: {LONG} GB, V size: 1.2.3 GB",
        f"Load weight end. elapsed={LONG}, type=x, mem usage=1.2.3.",
        f"Capture target verify CUDA graph end. elapsed={LONG}",
        f"Loading: 100%|##########| {LONG}/{LONG} [00:00<{LONG}:00]",
        f"max_total_num_tokens=1, context_len={LONG}, max_running_requests=٣",
        f"Hot change applied. speculative_ddtree_budget: {LONG} -> {LONG} (from /set_internal_state)",
        f"Initialized DDTREE draft runner. tree_budget={LONG}, draft_window_size=NaN, compact_cache=²",
        "server_args=ServerArgs((((('",
    ],
    ids=lambda line: line[:20],
)
def test_a_log_line_with_impossible_numbers_is_folded(line: str) -> None:
    log = StartLog().add(LogLine(line, number=1))
    for knob in KNOBS.values():
        log_reading(log, knob)


def test_metrics_with_impossible_values_are_read_and_cost_nothing() -> None:
    text = (
        f'sglang:num_running_reqs{{tp_rank="²"}} NaN\nsglang:num_queue_reqs +Inf\nsglang:max_total_num_tokens {LONG}\n'
        'sglang:spec_accepted_drafts_total{accepted="99999999999"} 1\n'
        f'sglang:spec_accepted_drafts_total{{accepted="{LONG}"}} 1\nsglang:spec_accepted_drafts_total{{accepted="2"}} 3\n'
    )
    sample = parse_metrics(text)
    assert sample.accepted_drafts == (1.0, 0.0, 3.0)
    assert (sample.running, sample.queued, sample.max_total_tokens) == (None, None, None)


def test_tables_of_processes_and_gpus_with_impossible_numbers_are_read() -> None:
    parse_gpus(f"{LONG}, x, {LONG}, {LONG}, {LONG}, {LONG}, {LONG}, {LONG}")
    parse_compute_apps(f"{LONG}, x, y, {LONG}")
    assert parse_process(1, cmdline=b"", stat=f"1 (x) S {LONG} {'² ' * 30}".encode()).started_ticks is None


def test_a_number_is_read_or_unknown() -> None:
    assert [whole(text) for text in ("0", "12", "٣", "²", "-1", "", None, LONG)] == [0, 12, None, None, None, None, None, None]
    assert read_json(b'{"a": [1, -2, 1.5, 1e999, NaN, -Infinity]}') == {"a": [1, -2, 1.5, None, None, None]}


def test_half_a_character_is_replaced_and_two_halves_are_one_character() -> None:
    """A lone half can be neither printed nor written to a file: the console would end with an error of its own."""
    assert read_json(b'{"a\\ud83d": ["x\\uDE00y", {"b": "\\ud83d\\ude00"}], "c": "\\u00e9"}') == {
        "a\ufffd": ["x\ufffdy", {"b": "\U0001f600"}],
        "c": "\u00e9",
    }
