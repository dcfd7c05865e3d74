"""``docs/faults.md``: what was expected of each fault, what came of it, and the totals."""

from __future__ import annotations

import platform
import re
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from .records import Fault, Old, Outcome, Where

FILE = Path(__file__).parents[2] / "docs/faults.md"
HEAD = """\
# Faults

What the console says when something breaks, measured on real hosts: every row boots a host (systemd, journald, sshd), starts
an engine on it as a unit, breaks one thing, and gives the change `tree_budget=16, draft_window=512` to
`ddtree-console apply --json`. The verdict is the one in its JSON. What became of the old configuration is what the host itself
says afterwards: *in place* (files and loaded command as before), *restored* (the console rolled back by itself and the old
command runs), *restorable* (one `ddtree-console rollback`, once the fault was over, brought it back, running), *lost*.

Written by `make faults`; `python -m tests.faults --list` shows the faults, `--only NAME` runs one, `--again` those that are not
as expected here.
"""
PASSED, FAILED, FALSE = "✓", "✗", "✗ false confirmed"
NONE = "–"
BAD = "## Not as expected"


def versions() -> str:
    systemd = _first_line("systemctl", "--version").split()[1:2]
    ssh = _first_line("ssh", "-V").split(",")[0]
    return f"systemd {''.join(systemd)}, {ssh}, Python {platform.python_version()}"


@dataclass(frozen=True)
class Row:
    """One fault's line of the page, and what was wrong with it."""

    name: str
    story: str
    expected: str
    given: str
    old: str
    seconds: str
    mark: str
    problems: str = ""

    @property
    def passed(self) -> bool:
        return self.mark == PASSED


def row_of(outcome: Outcome) -> Row:
    fault = outcome.fault
    mark = PASSED if outcome.passed else FALSE if outcome.false_confirmed else FAILED
    return Row(
        fault.name,
        _cell(fault.story),
        " or ".join(given.value for given in fault.expected),
        outcome.given.value if outcome.given is not None else NONE,
        outcome.old.value if outcome.old is not None else NONE,
        f"{outcome.seconds:.1f}",
        mark,
        _cell("; ".join(outcome.problems)),
    )


def totals(rows: Iterable[Row]) -> str:
    found = list(rows)
    passed = sum(row.passed for row in found)
    false = sum(row.mark == FALSE for row in found)
    lost = sum(row.old == Old.LOST.value for row in found)
    return f"{passed} of {len(found)} as expected; {false} false confirmed; {lost} lost configurations"


def render(rows: Mapping[str, Row], faults: Iterable[Fault]) -> str:
    """The whole page: the rows of ``faults``, in their order."""
    declared = [fault for fault in faults if fault.name in rows]
    day = time.strftime("%Y-%m-%d", time.gmtime())
    lines = [HEAD, f"{day}, {versions()}: **{totals(rows[fault.name] for fault in declared)}**.", ""]
    for where in Where:
        shown = [rows[fault.name] for fault in declared if fault.where is where]
        if not shown:
            continue
        lines += [f"## {where.value}", "", "| fault | what happens | expected | given | old configuration | s | |"]
        lines += ["|---|---|---|---|---|---|---|", *map(_line, shown), ""]
    failed = [row for row in (rows[fault.name] for fault in declared) if not row.passed]
    if failed:
        lines += [BAD, "", *(f"- {row.name}: {row.problems}" for row in failed), ""]
    return "\n".join(lines)


def read(page: str) -> dict[str, Row]:
    """The rows of a page that :func:`render` made, by the fault's name."""
    rows: dict[str, Row] = {}
    for line in page.splitlines():
        cells = [cell.replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 7 and cells[5].strip().replace(".", "").isdigit():
            row = Row(*(cell.strip() for cell in cells))
            rows[row.name] = row
    for line in page.partition(BAD)[2].splitlines():
        name, colon, problems = line.removeprefix("- ").partition(": ")
        if colon and name in rows:
            rows[name] = replace(rows[name], problems=problems)
    return rows


def _line(row: Row) -> str:
    cells = (row.name, row.story, row.expected, row.given, row.old, row.seconds, row.mark)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _cell(text: str) -> str:
    return " ".join(text.split())


def _first_line(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return next(iter((done.stdout or done.stderr).splitlines()), "")
