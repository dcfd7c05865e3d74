"""``docs/faults.md``: what was expected of each fault, what came of it, and the totals."""

from __future__ import annotations

import platform
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from .records import Old, Outcome, Where

FILE = Path(__file__).parents[2] / "docs/faults.md"
HEAD = """\
# Faults

What the console says when something breaks, measured on real hosts: every row boots a host (systemd, journald, sshd), starts
an engine on it as a unit, breaks one thing, and gives the change `tree_budget=16, draft_window=512` to
`ddtree-console apply --json`. The verdict is the one in its JSON. What became of the old configuration is what the host itself
says afterwards: *in place* (files and loaded command as before), *restored* (the console rolled back by itself and the old
command runs), *restorable* (one `ddtree-console rollback`, once the fault was over, brought it back, running), *lost*.

Written by `make faults`; `python -m tests.faults --list` shows the faults, `--only NAME` runs one.
"""


def versions() -> str:
    systemd = _first_line("systemctl", "--version").split()[1:2]
    ssh = _first_line("ssh", "-V").split(",")[0]
    return f"systemd {''.join(systemd)}, {ssh}, Python {platform.python_version()}"


def totals(outcomes: Sequence[Outcome]) -> str:
    passed = sum(outcome.passed for outcome in outcomes)
    false = sum(outcome.false_confirmed for outcome in outcomes)
    lost = sum(outcome.old is Old.LOST for outcome in outcomes)
    return f"{passed} of {len(outcomes)} as expected; {false} false confirmed; {lost} lost configurations"


def render(outcomes: Sequence[Outcome]) -> str:
    """The whole page."""
    day = time.strftime("%Y-%m-%d", time.gmtime())
    lines = [HEAD, f"{day}, {versions()}: **{totals(outcomes)}**.", ""]
    for where in Where:
        rows = [outcome for outcome in outcomes if outcome.fault.where is where]
        if not rows:
            continue
        lines += [f"## {where.value}", "", "| fault | what happens | expected | given | old configuration | s | |"]
        lines += ["|---|---|---|---|---|---|---|", *map(_row, rows), ""]
    failed = [outcome for outcome in outcomes if not outcome.passed]
    if failed:
        lines += ["## Not as expected", "", *(f"- {_cell(o.fault.name)}: {_cell('; '.join(o.problems))}" for o in failed), ""]
    return "\n".join(lines)


def _row(outcome: Outcome) -> str:
    fault = outcome.fault
    cells = (
        fault.name,
        fault.story,
        " or ".join(given.value for given in fault.expected),
        outcome.given.value if outcome.given is not None else "–",
        outcome.old.value if outcome.old is not None else "–",
        f"{outcome.seconds:.1f}",
        "✓" if outcome.passed else "✗",
    )
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _first_line(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return next(iter((done.stdout or done.stderr).splitlines()), "")
