"""The settings that may change while the server runs: their names, bounds and refusals, and a request's own.

The keys are those of the embedded engine, so that one console speaks to both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from engine_launch.sglang_plugin.options import Limits
from engine_launch.spec.tree_sizes import MAX_WINDOW

_SANE = 1 << 53
"""Numbers beyond it are not written out in a message."""
REQUEST_KEYS = ("ddtree_budget", "ddtree_topk", "speculative")
"""What ``sampling_params.custom_params`` may hold for DDTREE; other keys are somebody else's."""
_OURS = ("ddtree", "speculati")
"""What begins so is meant for DDTREE: the name of a hot setting in the place of a request's, say."""


@dataclass(frozen=True)
class Settings:
    """What is in effect."""

    budget: int
    topk: int
    window: int
    """Tokens of the compact draft cache; 0 is off."""
    speculation: bool = True

    def as_reported(self) -> dict[str, int]:
        """Under the names of ``/set_internal_state`` and ``/server_info``."""
        return {
            "speculative_ddtree_budget": self.budget,
            "speculative_ddtree_topk": self.topk,
            "speculative_draft_window_size": self.window,
            "speculation": int(self.speculation),
        }


FIELDS: Mapping[str, str] = {
    "speculative_ddtree_budget": "budget",
    "speculative_ddtree_topk": "topk",
    "speculative_draft_window_size": "window",
    "speculation": "speculation",
}


def change(current: Settings, limits: Limits, name: str, value: float) -> Settings:
    """The settings after setting ``name`` to ``value``.

    Raises:
        ValueError: the value is not taken; the message says why.
    """
    if value != value or value in (float("inf"), float("-inf")) or value != int(value):
        raise ValueError(f"{value} is not a whole number")
    if abs(value) > _SANE:
        raise ValueError(f"{value:g} is out of all bounds")
    number = int(value)
    if name == "speculation":
        if number not in (0, 1):
            raise ValueError(f"speculation is 0 or 1, not {number}")
        return replace(current, speculation=bool(number))
    if name == "speculative_ddtree_budget":
        _check_budget(number, limits)
        return replace(current, budget=number)
    if name == "speculative_ddtree_topk":
        _check_topk(number, limits)
        return replace(current, topk=number)
    if limits.ring_window and not limits.block <= number <= limits.ring_window:
        raise ValueError(
            f"the draft window is {number}; with --speculative-ddtree-draft-pool ring {limits.block} to {limits.ring_window} "
            "tokens are possible, and off is not: a larger --speculative-draft-window-size, or the stock pool, needs a restart"
        )
    if number != 0 and not limits.block <= number <= MAX_WINDOW:
        raise ValueError(
            f"the draft window is {number}; 0 (off) or at least the block size of {limits.block} is needed, "
            f"and at most {MAX_WINDOW}"
        )
    return replace(current, window=number)


def request_refusal(custom: object, limits: Limits) -> str:
    """Why a request's own settings cannot be, or an empty text."""
    try:
        own(custom, Settings(limits.budget, limits.topk, 0), limits)
    except ValueError as error:
        return str(error)
    return ""


def own(custom: object, current: Settings, limits: Limits) -> tuple[int, int]:
    """Budget and top-k of one request; budget 0 is *no speculation*. ``custom`` is what the client sent, of whatever kind.

    Raises:
        ValueError: ``custom`` or a value in it is of the wrong kind or out of bounds.
    """
    budget, topk, speculative = current.budget, current.topk, current.speculation
    if custom is not None:
        if not isinstance(custom, Mapping):  # SGLang lets any JSON through to the scheduler
            raise ValueError(f"custom_params is an object, not {type(custom).__name__}")
        meant = sorted(key for key in custom if isinstance(key, str) and key.startswith(_OURS) and key not in REQUEST_KEYS)
        if meant:
            raise ValueError(f"custom_params.{meant[0]} is not known; DDTREE reads {', '.join(REQUEST_KEYS)}")
        for key in REQUEST_KEYS:
            given = custom.get(key)
            if given is None:
                continue
            if key == "speculative":
                if not isinstance(given, (bool, int)) or given not in (0, 1):
                    raise ValueError(f"custom_params.speculative is true or false, not {given!r}")
                speculative = bool(given)
                continue
            if isinstance(given, bool) or not isinstance(given, int):
                raise ValueError(f"custom_params.{key} is a whole number, not {given!r}")
            if key == "ddtree_budget":
                _check_budget(given, limits)
                budget = given
            else:
                _check_topk(given, limits)
                topk = given
    return (budget if speculative else 0), topk


def _check_budget(value: int, limits: Limits) -> None:
    if not 1 <= value <= limits.max_budget:
        raise ValueError(
            f"the tree budget is {value}; 1 to {limits.max_budget} nodes are possible on this server "
            "(--speculative-ddtree-max-budget sets the most)"
        )


def _check_topk(value: int, limits: Limits) -> None:
    if not 1 <= value <= limits.max_topk:
        raise ValueError(
            f"the tree's top-k is {value}; 1 to {limits.max_topk} are possible on this server "
            "(--speculative-ddtree-max-topk sets the most)"
        )
