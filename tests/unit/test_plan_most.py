"""How far a tree can grow: what the running engine and the command line say of it, before a change is applied."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dflash_console.evidence.server import Dialect, parse_server_info
from dflash_console.knobs import Value
from dflash_console.plan import Mode, Plan, Severity
from dflash_console.state import Aged, HostState

from .plan_cases import codes, plan, state

RECORDED = Path(__file__).parents[1] / "fixtures/captures/two-gpus/server_info.json"
"""Of SGLang with the plugin: a budget of 16, which can be raised to 32, and a top-k of 4, which can be raised to 8."""
TREE = ("python", "-m", "sglang.launch_server", "--model-path", "/m", "--speculative-algorithm", "DDTREE")


def running(*flags: str) -> HostState:
    """SGLang with the plugin on this host, which was started with these flags."""
    info = parse_server_info(RECORDED.read_bytes())
    assert info.dialect is Dialect.PLUGIN
    return replace(state((*TREE, *flags), foreign=True), server=Aged(info, 0.0))


def said(made: Plan, code: str) -> str:
    """The one finding of this code."""
    (found,) = (finding.message for finding in made.findings if finding.code == code)
    return found


@pytest.mark.parametrize(("setting", "most", "flag"), [("tree_budget", 32, "max-budget"), ("tree_topk", 8, "max-topk")])
def test_more_than_the_running_engine_takes_is_refused_while_it_runs(setting: str, most: int, flag: str) -> None:
    assert not plan(running(), {setting: most}, Mode.HOT).blocked
    made = plan(running(), {setting: most + 1}, Mode.HOT)
    assert codes(made, Severity.ERROR) == {"hot_not_possible"}
    assert f"this start takes at most {most} (--speculative-ddtree-{flag}); use a restart" in made.errors[0].message
    assert not made.hot_values


def test_left_to_itself_such_a_plan_is_a_restart_and_says_why() -> None:
    assert plan(running(), {"tree_budget": 32}).mode is Mode.HOT
    made = plan(running(), {"tree_budget": 48})
    assert (made.mode, made.blocked) == (Mode.RESTART, False)
    assert said(made, "beyond_most").startswith("tree_budget=48 needs this restart: the running engine takes at most 32 (--")
    assert "beyond_most" not in codes(plan(running(), {"tree_budget": 48}, Mode.RESTART)), "whoever asks for one knows"


@pytest.mark.parametrize(("budget", "refused"), [(32, False), (33, True)])
def test_more_than_the_command_line_itself_allows_blocks_a_restart(budget: int, refused: bool) -> None:
    made = plan(running("--speculative-ddtree-max-budget", "32"), {"tree_budget": budget}, Mode.RESTART)
    assert ("beyond_most" in codes(made, Severity.ERROR)) is refused
    if refused:
        assert "--speculative-ddtree-budget 33 is more than --speculative-ddtree-max-budget 32" in said(made, "beyond_most")
        assert "raise that too (flag:--speculative-ddtree-max-budget=33)" in said(made, "beyond_most")
        both: dict[str, Value | None] = {"tree_budget": budget, "flag:--speculative-ddtree-max-budget": "33"}
        assert not plan(running("--speculative-ddtree-max-budget", "32"), both, Mode.RESTART).blocked


def test_a_chain_is_not_held_to_the_bounds_of_a_tree_that_it_does_not_have() -> None:
    left = running("--speculative-ddtree-max-budget", "4", "--speculative-ddtree-budget", "8")
    assert "beyond_most" not in codes(plan(left, {"algorithm": "DFLASH"}, Mode.RESTART))


def test_where_no_bound_is_reported_none_is_made_up() -> None:
    assert not plan(state(), {"tree_budget": 200, "tree_topk": 64}, Mode.HOT).blocked
