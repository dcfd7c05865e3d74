"""Which settings may change while the engine runs, and within which bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from engine_launch.embedded.api import Algorithm, EngineError, RequestOverrides, Settings

HOT_FIELDS: Mapping[str, str] = {
    "speculative_ddtree_budget": "tree_budget",
    "speculative_ddtree_topk": "tree_topk",
    "speculative_draft_window_size": "draft_window",
    "speculation": "speculation",
}
"""Names of ``/set_internal_state`` → fields of :class:`Settings`. Values are numbers: a budget of 0 is ``auto``."""
MAX_TREE_BUDGET = 256
"""A verify of more rows takes seconds on a CPU, and every request of the batch waits for it."""
MAX_TREE_TOPK = 64
MAX_WINDOW = 1 << 20
"""Tokens; beyond every context length there is, and far from where position arithmetic overflows."""


@dataclass(frozen=True)
class ChangeOutcome:
    """What became of a hot change."""

    accepted: bool
    old: int
    settings: Settings
    reason: str = ""
    """Why it was refused."""


def apply_change(current: Settings, startup: Settings, name: str, value: float) -> ChangeOutcome:
    """The settings after changing ``name`` (SGLang's spelling) to ``value``, or the reason why not."""
    field = HOT_FIELDS.get(name)
    if field is None:
        known = ", ".join(HOT_FIELDS)
        return ChangeOutcome(False, 0, current, f"{name} cannot be changed while running; these can: {known}")
    old = int(getattr(current, field))
    reason = _refusal(startup, field, value)
    if reason:
        return ChangeOutcome(False, old, current, reason)
    return ChangeOutcome(True, old, _changed(current, field, int(value)))


def _changed(current: Settings, field: str, value: int) -> Settings:
    if field == "tree_budget":
        return replace(current, tree_budget=value)
    if field == "tree_topk":
        return replace(current, tree_topk=value)
    if field == "draft_window":
        return replace(current, draft_window=value)
    return replace(current, speculation=bool(value))


def _refusal(startup: Settings, field: str, value: float) -> str:
    if startup.algorithm is Algorithm.PLAIN:
        return "the engine was started without a drafter; a restart with --speculative-algorithm is needed"
    if value != value or value in (float("inf"), float("-inf")) or value != int(value):
        return f"{value} is not a whole number"
    if field in ("tree_budget", "tree_topk") and startup.algorithm is not Algorithm.DDTREE:
        return "the algorithm is DFLASH, which has no tree; a restart with --speculative-algorithm DDTREE is needed"
    if field == "tree_budget":
        return "" if value == 0 else budget_refusal(int(value))
    if field == "tree_topk":
        return topk_refusal(int(value))
    if field == "draft_window":
        return window_refusal(int(value), startup.block_size)
    return "" if value in (0, 1) else f"speculation is 0 or 1, not {int(value)}"


def budget_refusal(value: int) -> str:
    """Why a tree budget cannot be, or an empty text."""
    return "" if 1 <= value <= MAX_TREE_BUDGET else f"the tree budget is {value}; 1 to {MAX_TREE_BUDGET} nodes are possible"


def topk_refusal(value: int) -> str:
    """Why a top-k cannot be, or an empty text."""
    return "" if 1 <= value <= MAX_TREE_TOPK else f"the tree's top-k is {value}; 1 to {MAX_TREE_TOPK} are possible"


def window_refusal(value: int, block_size: int) -> str:
    """Why a compact draft cache cannot have this size, or an empty text; 0 is off."""
    if value == 0 or block_size <= value <= MAX_WINDOW:
        return ""
    needed = f"0 (off) or at least the block size of {block_size} is needed, and at most {MAX_WINDOW}"
    return f"the compact draft cache is {value}; {needed}"


def check_overrides(overrides: RequestOverrides, settings: Settings) -> None:
    """Check a request's own settings against the engine.

    Raises:
        EngineError: a value is out of bounds, or asks for something that this engine was not started with.
    """
    if overrides.speculative and settings.algorithm is Algorithm.PLAIN:
        raise EngineError("the request asks for speculation, but the engine was started without a drafter")
    if settings.algorithm is not Algorithm.DDTREE and (overrides.ddtree_budget is not None or overrides.ddtree_topk is not None):
        raise EngineError("the request sets ddtree_budget or ddtree_topk, but the engine does not run DDTREE")
    if overrides.ddtree_budget is not None and (reason := budget_refusal(overrides.ddtree_budget)):
        raise EngineError(reason)
    if overrides.ddtree_topk is not None and (reason := topk_refusal(overrides.ddtree_topk)):
        raise EngineError(reason)
