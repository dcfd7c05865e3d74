"""The measurements of a drafter as JSON, and as the tables of its model card."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from engine_launch.training.drafter import Drafter
from engine_launch.training.heldout import HeldOutSet
from engine_launch.training.measures import CONTEXT_BOUNDS, Key, Measured, Measures, Tree, Wanted
from engine_launch.training.replay import CommitCounts, Windows

Counts = Mapping[tuple[HeldOutSet, float], int]
"""Answers by set and temperature."""
LONG_SETS = (HeldOutSet.LONG, HeldOutSet.CONVERSATION)
"""Sets whose contexts reach beyond the layers' window."""
JUDGED = (HeldOutSet.CODE, HeldOutSet.CHAT)
NOTHING = "–"


def as_json(measures: Measures, counts: Counts, setting: Mapping[str, str]) -> str:
    """Every histogram, with what it is of; ``setting`` says what was measured, and on what."""
    rows = [
        {
            "set": key.held_out.value,
            "answers": counts[key.held_out, key.temperature],
            "temperature": key.temperature,
            "layers_window": key.windows.layers,
            "compact_cache": key.windows.compact,
            "budget": key.tree and key.tree.budget,
            "topk": key.tree and key.tree.topk,
            "commit_length": round(measured.whole.commit_length, 4),
            "histogram": measured.whole.histogram,
            "histograms_by_context": [part.histogram for part in measured.by_context],
        }
        for key, measured in measures.items()
    ]
    return json.dumps({**setting, "context_bounds": CONTEXT_BOUNDS, "rows": rows}, indent=1) + "\n"


def as_markdown(measures: Measures, counts: Counts, drafter: Drafter, wanted: Wanted) -> str:
    """All tables that there are measurements for."""
    return "\n\n".join(Tables(measures, counts, drafter, wanted).all()) + "\n"


class Tables:
    """The tables, each with a sentence that says what it holds."""

    def __init__(self, measures: Measures, counts: Counts, drafter: Drafter, wanted: Wanted) -> None:
        self._measures, self._counts, self._wanted = measures, counts, wanted
        self._trained, self._usual, self._block = Windows.trained(drafter), wanted.usual, drafter.shape.block
        self._temperatures = sorted({temperature for _, temperature in counts})
        self._greedy = self._temperatures[0]
        self._sets = [name for name in HeldOutSet if any(name is held_out for held_out, _ in counts)]
        self._budgets = sorted({*wanted.budgets, self._usual.budget})
        self._modes: tuple[tuple[str, Tree | None], ...] = (("chain", None), (f"tree {self._usual.budget}", self._usual))

    def all(self) -> list[str]:
        """Every table, windows only where there is more than one."""
        parts = [self.by_budget(temperature) for temperature in self._temperatures]
        parts += [self.by_topk(), self.by_slot(), self.by_context()]
        if len(self._wanted.windows) > 1:
            parts += [self.by_window(), self.by_window_and_context()]
        return [part for part in parts if part]

    def by_budget(self, temperature: float) -> str:
        """Chain and every budget, and the code and chat sets' rounds together, by which the drafter is judged."""
        trees = (None, *(Tree(budget, self._usual.topk) for budget in self._budgets))
        rows = [
            (f"`{name.value}`", str(self._counts[name, temperature]), *(self._length(name, temperature, tree) for tree in trees))
            for name in self._sets
            if (name, temperature) in self._counts
        ]
        both = [self._found(JUDGED, temperature, tree) for tree in trees]
        if all(len(found) == len(JUDGED) for found in both):
            names = " and ".join(f"`{name.value}`" for name in JUDGED)
            total = sum(self._counts[name, temperature] for name in JUDGED)
            lengths = (f"{together(m.whole for m in found).commit_length:.2f}" for found in both)
            rows.append((f"{names}, all rounds", str(total), *lengths))
        head = ("held-out set", "answers", "chain", *(f"tree {budget}" for budget in self._budgets))
        return f"Temperature {temperature:g}, by budget; top-k {self._usual.topk}:\n\n{table(head, rows)}"

    def by_topk(self) -> str:
        topks = sorted({*self._wanted.topks, self._usual.topk})
        shown = [Tree(budget, topk) for budget in sorted({self._usual.budget, self._budgets[-1]}) for topk in topks]
        head = ("held-out set", *(f"{tree.budget} nodes, top-k {tree.topk}" for tree in shown))
        rows = [(f"`{name.value}`", *(self._length(name, self._greedy, tree) for tree in shown)) for name in self._sets]
        return f"By top-k, temperature {self._greedy:g}:\n\n{table(head, rows)}"

    def by_slot(self) -> str:
        slots = range(1, self._block)
        head = ("held-out set", "", f"rounds by accepted drafts, 0 to {slots[-1]}", *(f"slot {slot}" for slot in slots))
        rows = [
            (name, mode, " ".join(map(str, found.whole.histogram)), *(f"{share:.2f}" for share in found.whole.by_slot))
            for name, mode, found in self._of_modes()
        ]
        return f"By slot, the share of rounds that accepted its draft; temperature {self._greedy:g}:\n\n{table(head, rows)}"

    def by_context(self) -> str:
        rows = [(name, mode, *map(with_rounds, found.by_context)) for name, mode, found in self._of_modes()]
        caption = f"By the tokens before a round (rounds in brackets), temperature {self._greedy:g}:"
        return f"{caption}\n\n{by_length(('held-out set', ''), rows)}"

    def by_window(self) -> str:
        head = ("layers' window", "compact draft cache", *(f"`{name.value}`" for name in self._sets))
        rows = [
            (
                *words(w),
                *(" / ".join(self._length(name, self._greedy, tree, w) for _, tree in self._modes) for name in self._sets),
            )
            for w in self._wanted.windows
        ]
        return f"By window, chain / tree {self._usual.budget}, temperature {self._greedy:g}:\n\n{table(head, rows)}"

    def by_window_and_context(self) -> str:
        """Chains on the sets of long contexts, whose rounds are put together; empty where there are none."""
        rows = []
        for w in self._wanted.windows:
            if found := self._found(LONG_SETS, self._greedy, None, w):
                parts = zip(*(m.by_context for m in found), strict=True)
                rows.append((*words(w), *(with_rounds(together(same)) for same in parts)))
        names = " and ".join(f"`{name.value}`" for name in LONG_SETS if name in self._sets)
        return f"The same for the chain on {names}, by context:\n\n{by_length(('layers', 'compact'), rows)}" if rows else ""

    def _found(
        self, names: Iterable[HeldOutSet], temperature: float, tree: Tree | None, windows: Windows | None = None
    ) -> list[Measured]:
        keys = (Key(name, temperature, windows or self._trained, tree) for name in names)
        return [self._measures[key] for key in keys if key in self._measures]

    def _length(self, name: HeldOutSet, temperature: float, tree: Tree | None, windows: Windows | None = None) -> str:
        found = self._found((name,), temperature, tree, windows)
        return f"{found[0].whole.commit_length:.2f}" if found else NOTHING

    def _of_modes(self) -> Iterator[tuple[str, str, Measured]]:
        """Every set as a chain and as the usual tree."""
        for name in self._sets:
            for mode, tree in self._modes:
                for found in self._found((name,), self._greedy, tree):
                    yield f"`{name.value}`", mode, found


def words(windows: Windows) -> tuple[str, str]:
    """Both bounds as words."""
    return ("off" if windows.layers is None else str(windows.layers), "off" if windows.compact is None else str(windows.compact))


def with_rounds(result: CommitCounts) -> str:
    """Commit length and rounds, or a dash where there was none."""
    return f"{result.commit_length:.2f} ({result.rounds})" if result.rounds else NOTHING


def together(parts: Iterable[CommitCounts]) -> CommitCounts:
    """All their rounds."""
    return CommitCounts(tuple(map(sum, zip(*(part.histogram for part in parts), strict=True))))


def by_length(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A table whose further columns are context lengths, without those that nobody reaches."""
    bounds = [f"{b:,}" for b in CONTEXT_BOUNDS]
    middle = [f"{low} to {high - 1:,}" for low, high in zip(bounds, CONTEXT_BOUNDS[1:], strict=False)]
    names = [f"under {bounds[0]}", *middle, f"{bounds[-1]} and more"]
    used = [i for i in range(len(names)) if any(row[len(head) + i] != NOTHING for row in rows)]
    return table((*head, *(names[i] for i in used)), [(*row[: len(head)], *(row[len(head) + i] for i in used)) for row in rows])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
