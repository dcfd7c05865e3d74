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

from engine_launch.spec.tree_sizes import MAX_BUDGET, MAX_WINDOW, OptionError, tree_sizes, within

ENVIRONMENT = "DDTREE_SGLANG_OPTIONS"
DRAFT_POOLS = ("stock", "ring")


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
    ceiling: int = MAX_BUDGET
    """Largest budget that was asked for."""
    ring_window: int = 0
    """Largest draft window that the draft KV pool has room for, in tokens; 0 is the stock pool, which has room for all."""

    @property
    def max_width(self) -> int:
        """Widest verify pass; also the KV slots that a request needs for one round."""
        return self.widths[-1]

    @property
    def max_budget(self) -> int:
        """Largest budget that can be set while running; a drafter's block may make the widest pass wider than it needs."""
        return min(self.ceiling, self.max_width - 1)

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
        sizes = tree_sizes(block, self.budget, self.topk, self.max_budget, self.max_topk, self.widths)
        if window is not None:
            within("--speculative-draft-window-size", window, block, MAX_WINDOW)
        ring_window = (window or 0) if self.draft_pool == "ring" else 0
        return Limits(block, sizes.budget, sizes.topk, sizes.max_topk, sizes.widths, sizes.ceiling, ring_window)

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
