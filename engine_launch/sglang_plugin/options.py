"""What DDTREE was started with: the plugin's own flags, and what follows from them once the drafter's block is known.

SGLang's ``ServerArgs`` is a dataclass that the plugin cannot extend, and schedulers run in processes of their own, so the
values travel in one environment variable that those processes inherit.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import asdict, dataclass
from types import MappingProxyType

ENVIRONMENT = "DDTREE_SGLANG_OPTIONS"
DEFAULT_BUDGET = 8
DEFAULT_TOPK = 4
DEFAULT_CEILING = 32
"""Largest budget that can be set while running, unless asked for more."""
DEFAULT_TOPK_CEILING = 8
MAX_BUDGET = 256
DRAFT_POOLS = ("stock", "ring")
MAX_TOPK = 64


class OptionError(ValueError):
    """The flags cannot be; the message is one sentence for the user."""


@dataclass(frozen=True)
class Limits:
    """Numbers that one start holds to."""

    block: int
    """The drafter's block: the anchor and ``block - 1`` positions."""
    budget: int
    topk: int
    max_topk: int
    """Candidates per position that the draft graph takes."""
    widths: tuple[int, ...]
    """Rows of a verify pass (nodes and root) for which graphs are captured, ascending; 1 is plain decoding."""
    ring_window: int = 0
    """Largest draft window that the draft KV pool has room for, in tokens; 0 is the stock pool, which has room for all."""

    @property
    def max_width(self) -> int:
        """Widest verify pass; also the KV slots that a request needs for one round."""
        return self.widths[-1]

    @property
    def max_budget(self) -> int:
        return self.max_width - 1

    def width_for(self, budget: int) -> int:
        """The smallest captured width in which ``budget`` nodes and the root fit."""
        return next(width for width in self.widths if width > budget)


@dataclass(frozen=True)
class Options:
    """The flags as given; ``None`` is *not given*."""

    budget: int | None = None
    topk: int | None = None
    max_budget: int | None = None
    max_topk: int | None = None
    widths: tuple[int, ...] | None = None
    self_test: bool = False
    draft_pool: str | None = None

    def resolve(self, block: int, window: int | None = None) -> Limits:
        """Fill in what was not given.

        Args:
            window: ``--speculative-draft-window-size``, which is how large the ring of a request is.

        Raises:
            OptionError: a number is out of bounds, or two contradict each other.
        """
        _within("the drafter's block (--speculative-num-draft-tokens, or its config.json)", block, 2, MAX_BUDGET + 1)
        budget = DEFAULT_BUDGET if self.budget is None else self.budget
        topk = DEFAULT_TOPK if self.topk is None else self.topk
        ceiling = max(budget, DEFAULT_CEILING) if self.max_budget is None else self.max_budget
        topk_ceiling = max(topk, DEFAULT_TOPK_CEILING) if self.max_topk is None else self.max_topk
        _within("--speculative-ddtree-budget", budget, 1, MAX_BUDGET)
        _within("--speculative-ddtree-topk", topk, 1, MAX_TOPK)
        _within("--speculative-ddtree-max-budget", ceiling, 1, MAX_BUDGET)
        _within("--speculative-ddtree-max-topk", topk_ceiling, 1, MAX_TOPK)
        if budget > ceiling:
            raise OptionError(f"--speculative-ddtree-budget {budget} is more than --speculative-ddtree-max-budget {ceiling}")
        if topk > topk_ceiling:
            raise OptionError(f"--speculative-ddtree-topk {topk} is more than --speculative-ddtree-max-topk {topk_ceiling}")
        # The allocator reserves as many slots as the widest pass has rows, and the drafter's block needs its own.
        widest = max(ceiling + 1, block)
        chosen = self.widths
        if chosen is None:
            chosen = tuple(width for width in (budget + 1, 9, 17, 33, 65, 129) if width <= widest)
        for width in chosen:
            _within("each of --speculative-ddtree-verify-widths", width, 1, widest)
        ring_window = (window or 0) if self.draft_pool == "ring" else 0
        return Limits(block, budget, topk, topk_ceiling, tuple(sorted({1, *chosen, widest})), ring_window)

    def store(self, environment: MutableMapping[str, str] = os.environ) -> None:
        """Leave the values for this process and those that it starts."""
        environment[ENVIRONMENT] = json.dumps(asdict(self))

    @classmethod
    def load(cls, environment: Mapping[str, str] = os.environ) -> Options:
        """The values that a parent left, or that were set for ``sglang.Engine``, which reads no command line; or none of them.

        Raises:
            OptionError: the variable holds something else.
        """
        text = environment.get(ENVIRONMENT) or "{}"
        try:
            given = json.loads(text)
        except ValueError:
            given = None
        if not isinstance(given, dict) or not all(_fits(name, value) for name, value in given.items()):
            kinds = ", ".join(sorted(_KINDS))
            raise OptionError(
                f"{ENVIRONMENT} is {text[:200]!r}: it holds DDTREE's flags as a JSON object of numbers and words ({kinds}). "
                "A server sets it for its own processes: unset it, or correct it."
            )
        widths = given.pop("widths", None)
        return cls(**given, widths=None if widths is None else tuple(widths))


_KINDS: Mapping[str, Callable[[object], bool]] = MappingProxyType(
    {
        "budget": lambda value: type(value) is int,
        "topk": lambda value: type(value) is int,
        "max_budget": lambda value: type(value) is int,
        "max_topk": lambda value: type(value) is int,
        "widths": lambda value: isinstance(value, list) and bool(value) and all(type(item) is int for item in value),
        "self_test": lambda value: isinstance(value, bool),
        "draft_pool": lambda value: value in DRAFT_POOLS,
    }
)


def _fits(name: str, value: object) -> bool:
    """Whether one entry of the environment's object is an option and of its kind; ``null`` is *not given*."""
    return name in _KINDS and (_KINDS[name](value) or (value is None and name != "self_test"))


def parse_widths(text: str) -> tuple[int, ...]:
    """``2,9,17`` as numbers, ascending.

    Raises:
        ValueError: something in it is no whole number, or it holds none.
    """
    widths = tuple(sorted({int(part) for part in text.replace(" ", ",").split(",") if part}))
    if not widths:
        raise ValueError("no width is given")
    return widths


def _within(what: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise OptionError(f"{what} is {value}; {low} to {high} are possible")
