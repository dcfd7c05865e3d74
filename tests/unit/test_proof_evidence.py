"""What proves a value: the start's own line, the engine's report, the command line; and which of them an engine gives."""

from __future__ import annotations

import json

import pytest

from dflash_console.evidence.engine_log import StartLog
from dflash_console.evidence.journal import LogLine
from dflash_console.evidence.server import Dialect, parse_server_info
from dflash_console.knobs import KNOBS, OFF, Source, Value, find_knob
from dflash_console.proof import Proof, StartEvidence, proof_sources, prove

from .plan_cases import BASE, drafter, settings

LINE = (
    "Initialized DDTREE draft runner. attention_backend=triton, model=DFlashDraftModel, block_size=8, tree_budget=16, "
    "tree_topk=4, layers_window=512, draft_window_size=512, compact_cache=True"
)


def evidence(line: str | None, **now: object) -> StartEvidence:
    log = StartLog().add_all([LogLine(line, number=1)] if line is not None else [LogLine("hello", number=1)])
    body = {"engine": "embedded", "version": "ddtree-embedded 1", "internal_states": [settings(**now)]}
    return StartEvidence(log, parse_server_info(json.dumps(body)) if now else None, BASE, drafter())


@pytest.mark.parametrize(
    ("name", "wanted", "found", "proof"),
    [
        ("tree_budget", 16, evidence(LINE), Proof.PROVEN),
        ("tree_budget", 8, evidence(LINE), Proof.OTHER),
        ("tree_budget", 16, evidence(None), Proof.MISSING),
        ("tree_budget", 16, evidence(None, speculative_ddtree_budget=16), Proof.PROVEN),
        ("tree_budget", 16, evidence(LINE, speculative_ddtree_budget=8), Proof.OTHER),
        ("layers_window", "config", evidence(LINE), Proof.PROVEN),
        ("layers_window", OFF, evidence(LINE), Proof.OTHER),
        (
            "draft_window",
            OFF,
            evidence(LINE.replace("draft_window_size=512, compact_cache=True", "draft_window_size=None")),
            Proof.PROVEN,
        ),
        ("draft_window", 512, evidence(LINE.replace("draft_window_size=512, ", "")), Proof.MISSING),
        ("flag:--port", "30000", evidence(LINE), Proof.PROVEN),
        ("flag:--port", "30001", evidence(LINE), Proof.OTHER),
        ("max_running_requests", None, evidence(LINE), Proof.PROVEN),
        ("speculation", False, evidence(LINE), Proof.UNPROVABLE),
    ],
)
def test_a_value_is_proven_only_by_evidence_that_shows_it(
    name: str, wanted: Value | None, found: StartEvidence, proof: Proof
) -> None:
    assert prove(find_knob(name), wanted, found).proof is proof


@pytest.mark.parametrize(
    ("dialect", "quiet", "sources"),
    [
        (Dialect.EMBEDDED, False, (Source.LOG, Source.SERVER)),
        (Dialect.EMBEDDED, True, (Source.SERVER,)),
        (Dialect.STOCK, False, (Source.LOG,)),
        (Dialect.STOCK, True, ()),
    ],
)
def test_what_can_prove_a_window_depends_on_the_engine_and_its_log(
    dialect: Dialect, quiet: bool, sources: tuple[Source, ...]
) -> None:
    assert proof_sources(KNOBS["draft_window"], dialect, quiet=quiet) == sources
