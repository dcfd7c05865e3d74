"""What a part found: checks with their targets, the figures behind them, what they were measured on; as JSON and as a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]


class Verdict(Enum):
    """How a check ended."""

    MET = "met"
    MISSED = "missed"
    SHOWN = "shown"
    """Measured without a target."""
    BROKEN = "broken"
    """The part ended with an error before it could tell."""


@dataclass(frozen=True)
class Check:
    """One row of the table."""

    name: str
    target: str
    """What must hold, in words; empty where the figure is only shown."""
    measured: str
    verdict: Verdict


def judged(name: str, target: str, measured: str, met: bool) -> Check:
    """A check that has a target."""
    return Check(name, target, measured, Verdict.MET if met else Verdict.MISSED)


def shown(name: str, measured: str) -> Check:
    """A figure without a target."""
    return Check(name, "", measured, Verdict.SHOWN)


@dataclass(frozen=True)
class Provenance:
    """What the figures were measured on."""

    commit: str
    """The project's commit, with ``+`` when the tree had changes; ``unknown`` outside a repository."""
    date: str
    """UTC, ISO 8601, seconds."""
    device: str
    driver: str
    versions: Mapping[str, str]
    """Package → version: sglang, torch, triton …"""


@dataclass(frozen=True)
class PartResult:
    """One part's run."""

    part: str
    seconds: float
    provenance: Provenance
    checks: tuple[Check, ...]
    data: Mapping[str, Json] = field(default_factory=dict)
    """Figures behind the checks, for who wants to look closer."""
    scale: float = 1.0
    """Share of the full amount of work that was done."""

    def to_json(self) -> str:
        record = asdict(self)
        for check in record["checks"]:
            check["verdict"] = check["verdict"].value
        return json.dumps(record, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> PartResult:
        """Read what :meth:`to_json` wrote.

        Raises:
            ValueError: it is no result file.
        """
        try:
            record = json.loads(text)
            checks = tuple(Check(c["name"], c["target"], c["measured"], Verdict(c["verdict"])) for c in record["checks"])
            origin = Provenance(**record["provenance"])
            return cls(record["part"], float(record["seconds"]), origin, checks, record["data"], float(record["scale"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a result file: {type(error).__name__} {error}") from error


def read_results(paths: Iterable[Path]) -> list[PartResult]:
    """Result files, the newest of each part only, in the parts' order of date.

    Raises:
        ValueError: a file is none, named in the message.
    """
    newest: dict[str, PartResult] = {}
    for path in paths:
        try:
            result = PartResult.from_json(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        known = newest.get(result.part)
        if known is None or known.provenance.date <= result.provenance.date:
            newest[result.part] = result
    return sorted(newest.values(), key=lambda result: (result.provenance.date, result.part))


def table(results: Sequence[PartResult]) -> str:
    """Markdown: one row a check, and below it what each part was measured on."""
    lines = ["| part | check | target | measured | |", "|---|---|---|---|---|"]
    for result in results:
        for check in result.checks:
            cells = (result.part, check.name, check.target or "–", check.measured, check.verdict.value)
            lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    lines += [
        "",
        "| part | date (UTC) | share of the full work | seconds | commit | device | versions |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in results:
        origin = result.provenance
        versions = ", ".join(f"{name} {version}" for name, version in origin.versions.items())
        device = f"{origin.device}, driver {origin.driver}"
        ran = [result.part, origin.date, f"{result.scale:.0%}", f"{result.seconds:.0f}", origin.commit, device, versions]
        lines.append("| " + " | ".join(ran) + " |")
    return "\n".join(lines) + "\n"
