"""A server's own report: what was asked apart from what is in effect, old and new names, no secrets."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_console.evidence.reading import Known
from dflash_console.evidence.server import (
    DISAGREE,
    Dialect,
    Loads,
    ServerInfo,
    compact_cache_in_effect,
    in_effect_reading,
    parse_loads,
    parse_server_info,
    server_reading,
)
from dflash_console.knobs import KNOBS, OFF, PLAIN

from .support import CAPTURES, CASES

WINDOW = KNOBS["draft_window"]
BUDGET = KNOBS["tree_budget"]
RENAMES = CASES / "32-endpoint-renames"


def our_server(**now: object) -> ServerInfo:
    """An engine of ours: flags at the top, computed values at start, values in effect per rank."""
    started = {
        "algorithm": "DDTREE",
        "speculation": True,
        "block_size": 8,
        "speculative_ddtree_budget": 8,
        "speculative_ddtree_topk": 4,
        "speculative_draft_window_size": None,
        "layers_window": 512,
        "compact_cache": False,
    }
    body = {
        "speculative_algorithm": "DDTREE",
        "speculative_draft_window_size": None,
        "startup_settings": started,
        "internal_states": [
            {**started, **now, "draft_kv_bytes": 10, "spec_accept_histogram": [3, 2, 1], "verify_curve": [[1, 2.5]]}
        ],
        "engine": "embedded",
        "version": "ddtree-embedded 0.1.0",
    }
    return parse_server_info(json.dumps(body))


def test_a_recorded_stock_server_says_what_was_asked_and_not_what_is_in_effect() -> None:
    info = parse_server_info((CAPTURES / "server_info.json").read_bytes())
    assert info.dialect is Dialect.STOCK
    assert info.engine_name == "SGLang 0.5.17"
    assert info.algorithm == "DFLASH"
    assert server_reading(info, WINDOW).value == 64
    assert server_reading(info, KNOBS["block_size"]).value == 8
    echo = in_effect_reading(info, WINDOW)
    assert echo.known is Known.UNKNOWN
    assert "repeats its flags" in echo.why
    assert info.hot_knobs() == frozenset()


def test_a_figure_that_a_stock_server_computes_is_in_effect() -> None:
    info = parse_server_info((CAPTURES / "server_info.json").read_bytes())
    assert in_effect_reading(info, KNOBS["max_running_requests"]).value == 4
    assert info.number("last_gen_throughput") == pytest.approx(321.54, abs=0.01)
    assert info.ranks[0]["memory_usage.kvcache"] == 18.491


@pytest.mark.parametrize("name", ["get_server_info.old.json", "server_info.new.json"])
def test_the_window_is_found_under_its_old_and_its_new_name(name: str) -> None:
    info = parse_server_info((RENAMES / name).read_bytes())
    assert server_reading(info, WINDOW).value == 2048
    assert server_reading(info, KNOBS["block_size"]).value == 16


def test_secrets_are_dropped_when_the_report_is_read() -> None:
    info = parse_server_info((RENAMES / "server_info.new.json").read_bytes())
    assert not {"api_key", "admin_api_key", "ssl_keyfile_password"} & set(info.fields)
    assert "EXAMPLE" not in repr(info) + repr(dict(info.fields))
    assert len(info.ranks) == 2


def test_our_engines_say_what_is_in_effect_apart_from_the_start() -> None:
    info = our_server(speculative_ddtree_budget=16, speculative_draft_window_size=512, compact_cache=True)
    assert info.dialect is Dialect.EMBEDDED
    assert in_effect_reading(info, BUDGET).value == 16
    assert server_reading(info, BUDGET).value == 8
    assert in_effect_reading(info, WINDOW).value == 512
    assert server_reading(info, WINDOW).value == OFF
    assert compact_cache_in_effect(info).value is True
    assert info.accept_histogram == (3, 2, 1)
    assert info.verify_curve == ((1.0, 2.5),)
    assert info.number("draft_kv_bytes") == 10


def test_hot_settings_follow_the_algorithm() -> None:
    assert our_server().hot_knobs() == {"speculation", "draft_window", "tree_budget", "tree_topk"}
    assert our_server(algorithm="DFLASH").hot_knobs() == {"speculation", "draft_window"}
    assert our_server(algorithm="PLAIN").hot_knobs() == frozenset()


def test_an_automatic_budget_is_read_with_its_bound() -> None:
    reading = in_effect_reading(our_server(speculative_ddtree_budget="auto(max 64)"), BUDGET)
    assert (reading.value, reading.text) == ("auto", "auto(max 64)")


def test_ranks_that_disagree_are_said_and_give_no_value() -> None:
    body = {"internal_states": [{"speculation": True, "speculative_ddtree_budget": b} for b in (8, 16)], "version": "0.5.17"}
    info = parse_server_info(json.dumps(body))
    assert info.dialect is Dialect.PLUGIN
    reading = in_effect_reading(info, BUDGET)
    assert reading.value is None
    assert reading.why == f"{DISAGREE}: rank 0: 8, rank 1: 16"


def test_a_setting_that_is_reported_as_null_or_nought_reads_off_for_people() -> None:
    for nothing in (None, 0):
        reading = in_effect_reading(our_server(speculative_draft_window_size=nothing), KNOBS["draft_window"])
        assert (reading.value, reading.words) == (OFF, "off")


def test_ranks_of_which_one_reports_null_disagree_in_words() -> None:
    ranks = [{"speculation": True, "speculative_draft_window_size": size} for size in (None, 512)]
    info = parse_server_info(json.dumps({"internal_states": ranks, "version": "0.5.17"}))
    assert in_effect_reading(info, KNOBS["draft_window"]).why == f"{DISAGREE}: rank 0: off, rank 1: 512"


def test_a_rank_that_does_not_name_a_setting_does_not_disagree() -> None:
    body = {"internal_states": [{"speculation": True, "speculative_ddtree_budget": 8}, {"last_gen_throughput": 0.0}]}
    assert in_effect_reading(parse_server_info(json.dumps(body)), BUDGET).value == 8


def test_a_fork_with_a_tree_of_its_own_is_known_by_its_fields() -> None:
    info = parse_server_info('{"speculative_algorithm": "DDTREE", "speculative_ddtree_budget": 24, "version": "0.5.9"}')
    assert info.dialect is Dialect.FORK
    assert server_reading(info, BUDGET).value == 24
    assert in_effect_reading(info, BUDGET).known is Known.UNKNOWN


def test_null_means_off_for_a_window_and_plain_for_the_algorithm_and_nothing_elsewhere() -> None:
    info = parse_server_info('{"speculative_algorithm": null, "speculative_draft_window_size": null, "context_length": null}')
    assert server_reading(info, WINDOW).value == OFF
    assert info.algorithm == PLAIN
    assert server_reading(info, KNOBS["context_length"]).known is Known.ABSENT


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b'{"detail":"Not Found"', b"\xff\xfe"])
def test_what_is_no_report_is_said_and_nothing_is_known_from_it(body: bytes) -> None:
    info = parse_server_info(body)
    assert info.problem
    assert server_reading(info, WINDOW).known is Known.UNKNOWN
    assert in_effect_reading(info, WINDOW).why == info.problem


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(
    ["internal_states", "startup_settings", "speculative_ddtree_budget", "version", "speculative_algorithm", "loads"]
)


@given(st.dictionaries(NAMES, JSON, max_size=5))
def test_no_json_makes_the_readers_fail(body: dict[str, object]) -> None:
    info = parse_server_info(json.dumps(body))
    for knob in KNOBS.values():
        server_reading(info, knob)
        in_effect_reading(info, knob)
    assert info.hot_knobs() <= set(KNOBS)
    parse_loads(json.dumps(body))


def test_loads_are_read_in_their_new_and_their_old_form() -> None:
    new = parse_loads((CAPTURES / "loads.json").read_bytes())
    assert (new.running, new.queued, new.max_total_tokens, new.accept_length) == (0, 0, 6463229, 1.0)
    assert (new.accelerator, new.accelerators, new.version) == ("NVIDIA H200", 1, "0.5.17")
    old = parse_loads((RENAMES / "get_load.old.json").read_bytes())
    assert (old.running, old.queued, old.used_tokens) == (1, 0, 812)


def test_waiting_requests_of_the_old_form_are_not_counted_as_running() -> None:
    assert parse_loads('[{"num_reqs": 5, "num_waiting_reqs": 2, "num_tokens": 1}]').running == 3


def test_loads_of_several_ranks_are_added_and_the_fullest_pool_counts() -> None:
    rows = [{"num_running_reqs": n, "num_waiting_reqs": 1, "token_usage": n / 10, "gen_throughput": 100.0} for n in (1, 3)]
    loads = parse_loads(json.dumps({"loads": rows}))
    assert (loads.running, loads.queued, loads.token_usage, loads.gen_throughput) == (4, 2, 0.3, 200.0)


def test_what_is_no_load_is_said() -> None:
    assert parse_loads(b"nope") == Loads(problem="the answer is not JSON")
    assert parse_loads(b'{"a": 1}').problem


def test_flags_in_an_object_of_their_own_are_read_without_their_secrets() -> None:
    body = {"server_args": {"speculative_algorithm": "DFLASH", "speculative_draft_window_size": 512, "api_key": "sk-x"}}
    info = parse_server_info(json.dumps({**body, "version": "0.4.3"}))
    assert info.dialect is Dialect.STOCK
    assert server_reading(info, KNOBS["draft_window"]).value == 512
    assert "sk-x" not in str(info.fields)


def test_loads_below_zero_are_unknown() -> None:
    assert parse_loads('{"loads": [{"num_running_reqs": -1, "num_waiting_reqs": 2}]}').running is None
