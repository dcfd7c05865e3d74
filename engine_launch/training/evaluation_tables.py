"""The measurements of a drafter as JSON, and as the tables of its model card."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from engine_launch.training.drafter import Drafter
from engine_launch.training.heldout import HeldOutSet
from engine_launch.training.measures import CONTEXT_BOUNDS, Key, Measured, Measures, Tree, Wanted
from engine_launch.training.replay import CommitCounts, Windows

Counts = Mapping[tuple[HeldOutSet, float], int]
"""Answers by set and temperature."""
LONG_SETS = (HeldOutSet.LONG, HeldOutSet.CONVERSATION)
"""Sets whose contexts reach beyond the layers' window."""
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
    trained = Windows.trained(drafter)
    usual = wanted.usual
    temperatures = sorted({temperature for _, temperature in counts})
    sets = [name for name in HeldOutSet if any(name is held_out for held_out, _ in counts)]
    greedy = temperatures[0]

    def result(name: HeldOutSet, temperature: float, tree: Tree | None, windows: Windows = trained) -> Measured | None:
        return measures.get(Key(name, temperature, windows, tree))

    def length(name: HeldOutSet, temperature: float, tree: Tree | None, windows: Windows = trained) -> str:
        found = result(name, temperature, tree, windows)
        return NOTHING if found is None else f"{found.whole.commit_length:.2f}"

    parts = []
    budgets = sorted({*wanted.budgets, usual.budget})
    for temperature in temperatures:
        head = ("held-out set", "answers", "chain", *(f"tree {budget}" for budget in budgets))
        body = [
            (
                f"`{name.value}`",
                str(counts[name, temperature]),
                *(length(name, temperature, tree) for tree in (None, *(Tree(b, usual.topk) for b in budgets))),
            )
            for name in sets
            if (name, temperature) in counts
        ]
        caption = f"Temperature {temperature:g}, commit length by budget; top-k {usual.topk}:"
        parts.append(f"{caption}\n\n{table(head, body)}")

    topks = sorted({*wanted.topks, usual.topk})
    largest = budgets[-1]
    shown = [Tree(budget, topk) for budget in sorted({usual.budget, largest}) for topk in topks]
    head = ("held-out set", *(f"{tree.budget} nodes, top-k {tree.topk}" for tree in shown))
    rows = [(f"`{name.value}`", *(length(name, greedy, tree) for tree in shown)) for name in sets]
    parts.append(f"By top-k, temperature {greedy:g}:\n\n{table(head, rows)}")

    slots = range(1, drafter.shape.block)
    head = ("held-out set", "", "rounds by accepted drafts, 0 to " + str(slots[-1]), *(f"slot {slot}" for slot in slots))
    rows = [
        (f"`{name.value}`", mode, " ".join(map(str, found.whole.histogram)), *(f"{share:.2f}" for share in found.whole.by_slot))
        for name in sets
        for mode, tree in modes(usual)
        if (found := result(name, greedy, tree))
    ]
    parts.append(f"By slot, the share of rounds that accepted its draft; temperature {greedy:g}:\n\n{table(head, rows)}")

    rows = [
        (f"`{name.value}`", mode, *map(with_rounds, found.by_context))
        for name in sets
        for mode, tree in modes(usual)
        if (found := result(name, greedy, tree))
    ]
    parts.append(
        f"By the tokens before a round (rounds in brackets), temperature {greedy:g}:\n\n{by_length(('held-out set', ''), rows)}"
    )

    if len(wanted.windows) > 1:
        head = ("layers' window", "compact cache", *(f"`{name.value}`" for name in sets))
        rows = [
            (*words(w), *(f"{length(name, greedy, None, w)} / {length(name, greedy, usual, w)}" for name in sets))
            for w in wanted.windows
        ]
        caption = f"By window, chain / tree of {usual.budget}, temperature {greedy:g}:"
        parts.append(f"{caption}\n\n{table(head, rows)}")
        long = [name for name in LONG_SETS if name in sets]
        rows = []
        for w in wanted.windows:
            chains = [m.by_context for name in long if (m := result(name, greedy, None, w))]
            if chains:
                rows.append((*words(w), *map(with_rounds, pooled(chains))))
        if rows:
            names = " and ".join(f"`{name.value}`" for name in long)
            parts.append(f"The same for the chain on {names} together, by context:\n\n{by_length(('layers', 'compact'), rows)}")
    return "\n\n".join(parts) + "\n"


def modes(usual: Tree) -> tuple[tuple[str, Tree | None], ...]:
    """Chain, and the usual tree."""
    return ("chain", None), (f"tree {usual.budget}", usual)


def words(windows: Windows) -> tuple[str, str]:
    """Both bounds as words."""
    return ("off" if windows.layers is None else str(windows.layers), "off" if windows.compact is None else str(windows.compact))


def with_rounds(result: CommitCounts) -> str:
    """Commit length and rounds, or a dash where there was none."""
    return f"{result.commit_length:.2f} ({result.rounds})" if result.rounds else NOTHING


def pooled(parts: Iterable[Sequence[CommitCounts]]) -> list[CommitCounts]:
    """The rounds of several sets together, context by context."""
    return [CommitCounts(tuple(map(sum, zip(*(r.histogram for r in same), strict=True)))) for same in zip(*parts, strict=True)]


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
