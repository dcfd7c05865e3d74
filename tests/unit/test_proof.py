"""What must never pass for proof: a command line that the engine contradicts, and words that only look like a start's own."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from dflash_console.evidence.engine_log import StartLog
from dflash_console.evidence.journal import LogLine
from dflash_console.evidence.server import parse_server_info
from dflash_console.knobs import Value, find_knob
from dflash_console.proof import Proof, StartEvidence, prove

STOCK = ("python", "-m", "sglang.launch_server", "--model-path", "/m")
CONFIRMATION = "Initialized DDTREE draft runner. block_size=8, tree_budget={budget}, tree_topk=4, draft_window_size=None"
READY = "The server is fired up and ready to roll!"


def started(
    *words: str, says: Mapping[str, object] | None = None, lines: tuple[str, ...] = (), argv: tuple[str, ...] = STOCK
) -> StartEvidence:
    """The evidence of a start with these flags, of an engine that reports ``says``."""
    body = {"model_path": "/m", "version": "0.5.17", **(says or {})}
    log = StartLog().add_all(LogLine(text, number=number) for number, text in enumerate(lines, 1))
    return StartEvidence(log, parse_server_info(json.dumps(body)), (*argv, *words))


@pytest.mark.parametrize(
    ("name", "wanted", "flag", "reported", "proof"),
    [
        ("attention_backend", "flashinfer", "--attention-backend=flashinfer", {"attention_backend": "triton"}, Proof.OTHER),
        ("attention_backend", "triton", "--attention-backend=triton", {"attention_backend": "triton"}, Proof.PROVEN),
        ("tp_size", 2, "--tp=2", {"tp_size": 1}, Proof.OTHER),
        ("mem_fraction", 0.8, "--mem-fraction-static=0.80", {"mem_fraction_static": 0.8}, Proof.PROVEN),
        ("flag:--page-size", "64", "--page-size=64", {"page_size": 1}, Proof.OTHER),
        ("flag:--page-size", "64", "--page-size=64", {"page_size": 64}, Proof.PROVEN),
        ("flag:--kv-cache-dtype", "auto", "--kv-cache-dtype=auto", {"kv_cache_dtype": "bfloat16"}, Proof.PROVEN),
        ("flag:--stream-interval", "0.50", "--stream-interval=0.50", {"stream_interval": 0.5}, Proof.PROVEN),
        ("flag:--page-size", "64", "--page-size=64", {}, Proof.PROVEN),
        ("flag:--page-size", "64", "--page-size=64", {"page_size": None}, Proof.PROVEN),
        ("flag:--enable-metrics", True, "--enable-metrics", {"enable_metrics": False}, Proof.OTHER),
        ("flag:--enable-metrics", True, "--enable-metrics", {"enable_metrics": True}, Proof.PROVEN),
        ("drafter", "./d", "--speculative-draft-model-path=./d", {"speculative_draft_model_path": "/srv/d"}, Proof.PROVEN),
    ],
)
def test_a_command_line_proves_a_value_only_while_the_engine_does_not_disagree(
    name: str, wanted: Value, flag: str, reported: Mapping[str, object], proof: Proof
) -> None:
    assert prove(find_knob(name), wanted, started(flag, says=reported)).proof is proof


def test_a_flag_that_the_engine_says_it_ignores_is_not_proven_by_standing_on_the_command_line() -> None:
    said = "--page-size is a flag of SGLang that the embedded engine has no use for; it is ignored."
    found = prove(find_knob("flag:--page-size"), "64", started("--page-size=64", lines=(said,)))
    assert found.proof is Proof.OTHER
    assert "is ignored, not 64 (log line 1" in found.words


def test_the_words_of_a_containers_client_are_not_the_engines_process() -> None:
    docker = ("docker", "run", "image", *STOCK)
    assert prove(find_knob("flag:--page-size"), "64", started("--page-size=64", argv=docker)).proof is Proof.MISSING
    assert prove(find_knob("flag:--page-size"), None, started(argv=docker)).proof is Proof.MISSING


def test_a_confirmation_line_after_the_engine_is_ready_confirms_nothing() -> None:
    # An engine that logs its requests prints whatever a prompt says.
    late = CONFIRMATION.format(budget=16)
    before = CONFIRMATION.format(budget=8)
    assert prove(find_knob("tree_budget"), 16, started(lines=(READY, late))).proof is Proof.MISSING
    assert prove(find_knob("tree_budget"), 16, started(lines=(before, READY, late))).proof is Proof.OTHER
    assert prove(find_knob("tree_budget"), 8, started(lines=(before, READY, late))).proof is Proof.PROVEN


ARGUMENTS = "[2026-07-11 02:00:00] server_args=ServerArgs(model_path='/m', speculative_algorithm={algorithm}, tp_size=1)"


@pytest.mark.parametrize("name", ["tree_budget", "algorithm", "block_size"])
@pytest.mark.parametrize("ready_before", [False, True])
def test_what_an_engine_printed_that_its_wrapper_has_replaced_proves_nothing(name: str, ready_before: bool) -> None:
    # "with a drafter || without": both are one start of the unit, and the log of both is the log of this start.
    first = (ARGUMENTS.format(algorithm="'DDTREE'"), CONFIRMATION.format(budget=16), *([READY] if ready_before else []))
    second = (ARGUMENTS.format(algorithm="None"), READY)
    wanted: dict[str, Value] = {"tree_budget": 16, "algorithm": "DDTREE", "block_size": 8}
    both = started(lines=(*first, "torch.OutOfMemoryError: CUDA out of memory", *second))
    assert prove(find_knob(name), wanted[name], started(lines=(*first, READY))).proof is Proof.PROVEN
    assert prove(find_knob(name), wanted[name], both).proof is not Proof.PROVEN
    if name == "tree_budget":
        said = prove(find_knob(name), 16, both).words
        assert f"started another engine at log line {len(first) + 2}, and that one has printed no confirmation line" in said
    again = started(lines=(*first, ARGUMENTS.format(algorithm="'DDTREE'"), CONFIRMATION.format(budget=16), READY))
    assert prove(find_knob(name), wanted[name], again).proof is Proof.PROVEN


def test_a_server_that_says_it_decodes_plainly_has_printed_no_drafters_line() -> None:
    # The second engine of the wrapper keeps its own lines to itself (--log-level error).
    lines = (ARGUMENTS.format(algorithm="'DDTREE'"), CONFIRMATION.format(budget=16), READY)
    plain = started(lines=lines, says={"speculative_algorithm": None})
    found = prove(find_knob("tree_budget"), 16, plain)
    assert (found.proof, found.words) == (
        Proof.OTHER,
        "tree budget is not used by PLAIN, not 16 (/server_info speculative_algorithm)",
    )
    assert prove(find_knob("algorithm"), "DDTREE", plain).proof is Proof.OTHER
    tree = started(lines=lines, says={"speculative_algorithm": "DDTREE"})
    assert prove(find_knob("tree_budget"), 16, tree).proof is Proof.PROVEN


@pytest.mark.parametrize(
    ("echo", "proof"), [({"speculative_draft_window_size": 512}, Proof.PROVEN), ({}, Proof.PROVEN)]
    + [({"speculative_draft_window_size": other}, Proof.OTHER) for other in (1024, None, 0)],
)  # fmt: skip
def test_a_server_that_was_started_with_another_value_has_not_printed_the_line(echo: Mapping[str, object], proof: Proof) -> None:
    # An older container has the port while the new one, whose log is read, still loads.
    line = "[2026-07-11 02:00:11 TP0] Initialized DFLASH draft runner. block_size=16, draft_window_size=512, compact_cache=True"
    found = prove(find_knob("draft_window"), 512, started(lines=(line,), says={"speculative_algorithm": "DFLASH", **echo}))
    assert found.proof is proof
    if echo.get("speculative_draft_window_size") == 1024:
        assert found.words == "compact draft cache is 1024, not 512 (/server_info speculative_draft_window_size)"
    # The width of a fork's verify pass stands under the name of the block.
    block = {"speculative_algorithm": "DFLASH", "speculative_num_draft_tokens": 25}
    assert prove(find_knob("block_size"), 16, started(lines=(line,), says=block)).proof is Proof.PROVEN


def test_after_a_hot_change_the_value_of_the_start_takes_nothing_back() -> None:
    changed = "Hot change applied. speculative_ddtree_budget: 8 -> 12 (from /set_internal_state)"
    now, before = ({"speculation": True, "speculative_ddtree_budget": budget} for budget in (12, 8))
    says = {"speculative_algorithm": "DDTREE", "speculative_ddtree_budget": 8, "startup_settings": before}
    lines = (CONFIRMATION.format(budget=8), READY, changed)
    hot = started(lines=lines, says={**says, "internal_states": [now]})
    assert prove(find_knob("tree_budget"), 12, hot).proof is Proof.PROVEN
    # One that still uses the other value.
    still = started(lines=lines, says={**says, "internal_states": [before]})
    assert prove(find_knob("tree_budget"), 12, still).proof is Proof.OTHER


def test_arguments_that_a_request_quotes_take_nothing_back() -> None:
    quoted = "Request rejected: " + ARGUMENTS.format(algorithm="None").partition("] ")[2]
    lines = (ARGUMENTS.format(algorithm="'DDTREE'"), CONFIRMATION.format(budget=16), READY, quoted)
    assert prove(find_knob("tree_budget"), 16, started(lines=lines)).proof is Proof.PROVEN
