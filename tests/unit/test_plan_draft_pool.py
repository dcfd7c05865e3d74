"""What a plan says of draft memory: SGLang's own pool keeps a row for every token, the ring and the embedded engine do not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from dflash_console.evidence.process import ProcessEvidence
from dflash_console.evidence.server import Dialect, parse_server_info
from dflash_console.knobs import OFF, Value
from dflash_console.plan import Mode, Plan, Severity
from dflash_console.state import Aged, HostState
from engine_launch.spec.kv import draft_kv_bytes

from .plan_cases import codes, drafter, plan, state

CONTEXT = 8192
ROW = 4 * 2 * 3 * 64 * 4
"""Bytes of one token's keys and values: 4 layers, 3 heads of 64, four bytes an element."""
BLOCK = 8
SGLANG = ("python", "-m", "sglang.launch_server", "--model-path", "/m", "--context-length", str(CONTEXT))
STOCK = (*SGLANG, "--speculative-algorithm", "DFLASH")
TREE = (*SGLANG, "--speculative-algorithm", "DDTREE", "--attention-backend", "triton")
RING = (*TREE, "--speculative-draft-window-size", "512", "--speculative-ddtree-draft-pool", "ring")


def plugin(command: tuple[str, ...], window: int | None = None) -> HostState:
    """SGLang with the plugin, which runs a tree."""
    now = {
        "algorithm": "DDTREE", "speculation": True, "block_size": BLOCK, "speculative_ddtree_budget": 8,
        "speculative_ddtree_topk": 4, "speculative_draft_window_size": window,
    }  # fmt: skip
    flags = {"model_path": "/m", "version": "0.5.17", "speculative_draft_window_size": window}
    info = parse_server_info(json.dumps({**flags, "internal_states": [now]}))
    assert info.dialect is Dialect.PLUGIN
    return replace(state(command, foreign=True), server=Aged(info, 0.0))


def memory(made: Plan) -> tuple[int | None, int | None]:
    """Bytes of a request after the change, and now."""
    return made.predictions.draft_kv_bytes_per_request, made.predictions.draft_kv_bytes_now


def said(made: Plan) -> str:
    """The finding about memory; empty without one."""
    return "".join(finding.message for finding in made.findings if finding.code == "memory_not_freed")


@pytest.mark.parametrize("window", [512, OFF])
def test_a_window_on_sglangs_own_pool_changes_nothing_about_a_requests_memory(window: Value) -> None:
    made = plan(state(STOCK, foreign=True), {"draft_window": window}, Mode.RESTART)
    assert memory(made) == (CONTEXT * ROW, CONTEXT * ROW)
    windowed = (*STOCK, "--speculative-draft-window-size", "512")
    assert memory(plan(state(windowed, foreign=True), {"draft_window": window}, Mode.RESTART)) == (CONTEXT * ROW, CONTEXT * ROW)


@pytest.mark.parametrize("mode", [Mode.RESTART, Mode.HOT])
def test_the_plugins_stock_pool_frees_nothing_either_and_the_ring_is_named(mode: Mode) -> None:
    made = plan(plugin(TREE), {"draft_window": 512}, mode)
    assert not made.blocked, made.errors
    assert memory(made) == (CONTEXT * ROW, CONTEXT * ROW)
    assert "its memory is not freed: 47 MB for a request of 8,192 tokens stay allocated" in said(made)
    assert said(made).endswith("A start with --speculative-ddtree-draft-pool ring has room for that cache alone")


def test_the_ring_is_as_long_as_the_window_and_no_word_is_said_of_memory() -> None:
    made = plan(plugin(RING, 512), {"draft_window": 1024}, Mode.RESTART)
    assert memory(made) == ((1024 + BLOCK) * ROW, (512 + BLOCK) * ROW)
    assert not said(made)


def test_taking_the_ring_takes_the_memory_beyond_the_window_away() -> None:
    wanted: dict[str, Value | None] = {"draft_window": 512, "flag:--speculative-ddtree-draft-pool": "ring"}
    made = plan(plugin(TREE), wanted, Mode.RESTART)
    assert memory(made) == ((512 + BLOCK) * ROW, CONTEXT * ROW)
    assert not said(made)


def test_a_window_that_is_made_smaller_while_the_ring_runs_leaves_the_ring_as_long_as_it_is() -> None:
    assert memory(plan(plugin(RING, 512), {"draft_window": 256}, Mode.HOT)) == ((512 + BLOCK) * ROW, (512 + BLOCK) * ROW)


def test_a_chain_has_no_ring_to_be_advised_and_none_by_a_tree_flag_left_in_the_file() -> None:
    left = (*STOCK, "--speculative-ddtree-draft-pool", "ring")
    made = plan(state(left, foreign=True), {"draft_window": 512}, Mode.RESTART)
    assert memory(made) == (CONTEXT * ROW, CONTEXT * ROW)
    assert "not freed" in said(made)
    assert "ring" not in said(made)


def test_the_embedded_engine_frees_what_lies_before_the_window() -> None:
    made = plan(state(), {"draft_window": 512}, Mode.RESTART)
    assert memory(made)[0] == draft_kv_bytes(drafter(), CONTEXT, layers_window=512, draft_window=512, dtype_bytes=4)
    assert not said(made)


def launched(*flags: str, body: Mapping[str, object] | None = None, embedded: bool = False) -> HostState:
    """A host's unit that runs the launcher without ``--engine``; ``body`` is what its server reports, where it runs."""
    command = ("ddtree-launch", "serve", "--model-path", "/m", "--speculative-algorithm", "DDTREE", "--port", "1", *flags)
    found = replace(state(command, running=False), embedded=embedded)
    if body is None:
        return found
    server = parse_server_info(json.dumps(body))
    return replace(found, server=Aged(server, 0.0), process=Aged(ProcessEvidence(7, command), 0.0), ready=True)


STOCK_BODY: Mapping[str, object] = {"model_path": "/m", "version": "0.5.17", "internal_states": [{"model_path": "/m"}]}


def test_where_the_launcher_chooses_the_engine_and_was_not_seen_to_neither_engines_rules_and_memory_are_taken() -> None:
    made = plan(launched("--tp-size", "2"), {"draft_window": 512}, Mode.RESTART)
    assert not {"flag_refused", "flag_without_effect"} & codes(made)
    assert memory(made) == (None, None)


def test_where_the_launcher_runs_sglang_its_rules_are_sglangs() -> None:
    made = plan(launched("--tp-size", "2", body=STOCK_BODY), {"flag:--page-size": "16"}, Mode.RESTART)
    assert codes(made, Severity.ERROR) == {"flag_refused"}
    assert "needs a drafter" in " ".join(finding.message for finding in made.errors)
    assert "embedded engine has no use" not in " ".join(finding.message for finding in made.findings)


def test_on_a_machine_where_it_can_only_be_the_embedded_engine_the_rules_are_that_engines() -> None:
    made = plan(launched("--tp-size", "2", embedded=True), {"draft_window": 512}, Mode.RESTART)
    assert "flag_without_effect" in codes(made, Severity.WARNING)


def test_the_launcher_told_to_start_sglang_is_judged_as_sglang_before_it_ever_ran() -> None:
    made = plan(launched("--engine", "sglang", "--tp-size", "2"), {"draft_window": 512}, Mode.RESTART)
    assert "needs a drafter" in made.errors[0].message
    made = plan(launched("--engine", "embedded", "--tp-size", "2"), {"draft_window": 512}, Mode.RESTART)
    assert "flag_without_effect" in codes(made, Severity.WARNING)


@pytest.mark.parametrize(("algorithm", "words"), [("DDTREE", "is 0; 2 to 257 are possible"), ("DFLASH", "a block of at least 1")])
def test_a_block_of_0_in_the_file_is_refused_and_not_taken_for_the_drafters_own(algorithm: str, words: str) -> None:
    flags = ("--speculative-draft-model-path", "d", "--attention-backend", "triton", "--speculative-num-draft-tokens", "0")
    made = plan(launched("--engine", "sglang", *flags), {"algorithm": algorithm, "draft_window": 512}, Mode.RESTART)
    assert codes(made, Severity.ERROR) == {"flag_refused"}
    assert words in made.errors[0].message
