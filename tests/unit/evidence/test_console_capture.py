"""What the console printed against SGLang on a GPU: the readers find in the quoted log lines what it said was in effect."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dflash_console.evidence.engine_log import log_reading
from dflash_console.knobs import KNOBS

from .support import CAPTURES, fold

STEPS: list[dict[str, Any]] = json.loads((CAPTURES / "console.json").read_text(encoding="utf-8"))
FROM_LOG = ("algorithm", "tree_budget", "tree_topk", "block_size", "draft_window")
"""Knobs that the log lines tell which an operation quotes."""


def words(step: dict[str, Any]) -> list[str]:
    """The unit and the command's own words."""
    command: str = step["command"]
    return [*command.split()[2:3], *command.split()[4:]]


def operations() -> list[tuple[list[str], dict[str, Any]]]:
    """The log lines that a confirmed operation quoted, with those of the start before it, and the next status of its unit."""
    found, lines = [], list[str]()
    for number, step in enumerate(STEPS):
        stages = step["output"].get("stages", [])
        quoted = [stage["evidence"] for stage in stages if stage["line"]]
        if not step["output"].get("confirmed"):
            continue
        lines = [*lines, *quoted] if step["output"]["mode"] == "hot" else quoted
        after = [later for later in STEPS[number + 1 :] if "config" in later["output"]]
        if after and words(after[0])[0] == words(step)[0]:
            found.append((lines, after[0]["output"]["config"]))
    return found


@pytest.mark.parametrize(("lines", "config"), operations())
def test_the_quoted_lines_say_what_status_says(lines: list[str], config: dict[str, Any]) -> None:
    log = fold(lines)
    assert log.ready
    read = {name: reading.value for name in FROM_LOG if (reading := log_reading(log, KNOBS[name])).value is not None}
    assert read == {name: config[name] for name in FROM_LOG if config[name] is not None}
    assert read["algorithm"] in ("DDTREE", "DFLASH")


def test_all_operations_were_recorded() -> None:
    assert len(operations()) == 5
    assert [(words(step)[1], step["exit"]) for step in STEPS if step["exit"]] == [("drift", 3), ("apply", 1), ("plan", 1)]


def test_findings_name_knobs_that_there_are() -> None:
    findings = [finding for step in STEPS for finding in step["output"].get("findings", [])]
    assert {finding["code"] for finding in findings} >= {"hot_not_possible", "unknown_flag"}
    assert {finding["knob"] for finding in findings} <= KNOBS.keys()


def test_a_hot_change_is_a_drift_from_the_file() -> None:
    (drifted,) = [step["output"]["items"] for step in STEPS if step["exit"] == 3]
    (budget,) = [item for item in drifted if item["verdict"] != "ok"]
    assert (budget["knob"], budget["unit"], budget["server"], budget["log"]) == ("tree_budget", 16, 8, 8)
