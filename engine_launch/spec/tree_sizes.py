"""Sizes of DDTREE inside SGLang: their defaults and bounds, and what follows from those that are given.

Pure. The plugin goes by it when SGLang starts; the launcher and the console find with it what would be refused then.
"""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_BUDGET = 8
DEFAULT_TOPK = 4
DEFAULT_CEILING = 32
"""Largest budget that can be set while running, unless asked for more."""
DEFAULT_TOPK_CEILING = 8
MAX_BUDGET = 256
MAX_TOPK = 64
MAX_WINDOW = 1 << 20
"""Tokens; beyond every context length there is."""
CAPTURED = (9, 17, 33, 65, 129)
"""Widths for which graphs are captured, unless told otherwise, beside that of the budget."""
TREE_FLAGS = "--speculative-ddtree-"
BLOCK = "the drafter's block (--speculative-num-draft-tokens, or its config.json)"


class OptionError(ValueError):
    """The flags cannot be; the message is one sentence for the user."""


@dataclass(frozen=True)
class TreeSizes:
    """Sizes that one start holds to."""

    budget: int
    topk: int
    max_topk: int
    ceiling: int
    """Largest budget that can be set while running."""
    widths: tuple[int, ...]
    """Rows of a verify pass, ascending; the last one is the widest tree's or the drafter's block."""


def tree_sizes(
    block: int,
    budget: int | None = None,
    topk: int | None = None,
    max_budget: int | None = None,
    max_topk: int | None = None,
    widths: tuple[int, ...] | None = None,
) -> TreeSizes:
    """Fill in what was not given (``None``).

    Args:
        block: the drafter's block, the anchor counted.

    Raises:
        OptionError: a number is out of bounds, or two contradict each other.
    """
    within(BLOCK, block, 2, MAX_BUDGET + 1)
    budget = DEFAULT_BUDGET if budget is None else budget
    topk = DEFAULT_TOPK if topk is None else topk
    ceiling = max(budget, DEFAULT_CEILING) if max_budget is None else max_budget
    topk_ceiling = max(topk, DEFAULT_TOPK_CEILING) if max_topk is None else max_topk
    within(f"{TREE_FLAGS}budget", budget, 1, MAX_BUDGET)
    within(f"{TREE_FLAGS}topk", topk, 1, MAX_TOPK)
    within(f"{TREE_FLAGS}max-budget", ceiling, 1, MAX_BUDGET)
    within(f"{TREE_FLAGS}max-topk", topk_ceiling, 1, MAX_TOPK)
    if budget > ceiling:
        raise OptionError(f"{TREE_FLAGS}budget {budget} is more than {TREE_FLAGS}max-budget {ceiling}")
    if topk > topk_ceiling:
        raise OptionError(f"{TREE_FLAGS}topk {topk} is more than {TREE_FLAGS}max-topk {topk_ceiling}")
    # The allocator reserves as many slots as the widest pass has rows, and the drafter's block needs its own.
    widest = max(ceiling + 1, block)
    chosen = widths
    if chosen is None:
        chosen = tuple(width for width in (budget + 1, *CAPTURED) if width <= widest)
    for width in chosen:
        within(f"each of {TREE_FLAGS}verify-widths", width, 1, widest)
    return TreeSizes(budget, topk, topk_ceiling, ceiling, tuple(sorted({1, *chosen, widest})))


def parse_widths(text: str) -> tuple[int, ...]:
    """``2,9,17`` as numbers, ascending; blanks do as well as commas.

    Raises:
        OptionError: something in it is no whole number, or it holds none.
    """
    try:
        widths = tuple(sorted({int(part) for part in text.replace(" ", ",").split(",") if part}))
    except ValueError:
        widths = ()
    if not widths:
        raise OptionError(f"takes whole numbers, such as 9,17,33, not {text!r}")
    return widths


def within(what: str, value: int, low: int, high: int) -> None:
    """Raises OptionError when ``value`` is out of its bounds."""
    if not low <= value <= high:
        raise OptionError(f"{what} is {value}; {low} to {high} are possible")
