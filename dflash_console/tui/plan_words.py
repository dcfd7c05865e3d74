"""A plan as text for the screen. Pure; nothing here is markup, and what a plan shows is masked already."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from rich.text import Text

from .. import formats
from ..evidence.reading import Known
from ..knobs import KNOBS, find_knob, same_value, show_value

if TYPE_CHECKING:
    from ..knobs import Value
    from ..plan import KnobChange, Plan, Predictions


def diff_text(plan: Plan, colours: dict[str, str]) -> Text:
    """The unified diff, each file under its path; added and removed lines are coloured, and the signs in front say the same."""
    text = Text()
    if not plan.diff:
        if plan.mode.value == "restart":
            text.append("No file changes: the restart takes what is written.\n", style=colours.get("quiet", ""))
            return text
        takes = ": the engine takes this while it runs" if plan.hot_values else ""
        text.append(f"No file changes{takes}.\n", style=colours.get("quiet", ""))
        for name, number in plan.hot_numbers.items():
            text.append(f"+ {name} = {number}\n", style=colours.get("success", ""))
        return text
    lines = plan.diff.splitlines()
    headings = _headings(lines)
    for index, line in enumerate(lines):
        style = ""
        if index + 1 in headings:
            continue
        if index in headings:
            line, style = line.removeprefix("+++ ").removesuffix(" (planned)"), "bold"
        elif line.startswith("+"):
            style = colours.get("success", "")
        elif line.startswith("-"):
            style = colours.get("error", "")
        elif line.startswith("@@"):
            style = colours.get("quiet", "")
        text.append(line + "\n", style=style)
    return text


def _headings(lines: list[str]) -> frozenset[int]:
    """Where files' second heading lines are. A changed line of dashes or plus signs looks like one; three in a row do not."""
    signs = ("--- ", "+++ ", "@@")
    return frozenset(
        index
        for index in range(1, len(lines) - 1)
        if all(lines[index + offset - 1].startswith(sign) for offset, sign in enumerate(signs))
    )


def command_text(plan: Plan) -> str:
    """The effective command, quoted as a shell would need it, a flag and its value to a line."""
    lines: list[str] = []
    for word in plan.shown_command:
        quoted = shlex.quote(word)
        if lines and not word.startswith("--") and lines[-1].startswith("  --") and " " not in lines[-1].strip():
            lines[-1] += f" {quoted}"
        elif word.startswith("--"):
            lines.append(f"  {quoted}")
        elif lines and not lines[-1].startswith("  "):
            lines[-1] += f" {quoted}"
        else:
            lines.append(quoted if not lines else f"  {quoted}")
    return " \\\n".join(lines)


def prediction_lines(predictions: Predictions, *, restart: bool) -> list[str]:
    """What to expect, a sentence a line; what is not known is left out."""
    lines = []
    if predictions.verify_width is not None:
        rows = predictions.verify_width
        time = f", about {predictions.verify_ms:.0f} ms as this engine measured it" if predictions.verify_ms is not None else ""
        lines.append(f"verify: {rows} rows wide{time}" if rows > 1 else "plain decoding: one row a step")
    if predictions.draft_kv_bytes_per_request is not None and predictions.context is not None:
        line = f"draft KV: {formats.size(predictions.draft_kv_bytes_per_request)} a request at {predictions.context:,} tokens"
        now = predictions.draft_kv_bytes_now
        if now is not None and now != predictions.draft_kv_bytes_per_request:
            line += f" (now {formats.size(now)})"
        if predictions.draft_kv_bytes_total is not None and predictions.requests is not None:
            line += f"; {formats.size(predictions.draft_kv_bytes_total)} for {predictions.requests} requests"
        lines.append(line)
    if restart:
        if predictions.restart_s is not None:
            lines.append(f"restart: about {formats.duration(predictions.restart_s)}, from this host's earlier starts")
        else:
            lines.append("restart: no earlier start to estimate from")
    else:
        lines.append("no restart: about a second; running requests go on")
    return lines


FINDING_SYMBOLS = {"error": "✗", "warning": "!", "info": "·"}
_FINDING_TONES = {"error": "error", "warning": "warning", "info": "quiet"}


def findings_text(plan: Plan, colours: dict[str, str]) -> Text:
    """Findings, the worst first; a line that says so when there are none."""
    text = Text()
    order = {"error": 0, "warning": 1, "info": 2}
    for finding in sorted(plan.findings, key=lambda found: order[found.severity.value]):
        tone = colours.get(_FINDING_TONES[finding.severity.value], "")
        text.append(f"{FINDING_SYMBOLS[finding.severity.value]} ", style=f"bold {tone}")
        text.append(f"{finding.message}\n", style=tone if finding.severity.value == "error" else "")
    if not plan.findings:
        text.append("✓ ", style=f"bold {colours.get('success', '')}")
        text.append("nothing found that speaks against it\n")
    return text


def change_lines(plan: Plan) -> list[tuple[str, str]]:
    """``Tree budget: 8 → 16`` and what will prove it, one setting each. Without those that stay: :func:`unchanged_words`.

    A value that is in effect and gets written down has no way to go: its line says what the file has instead.
    """
    from ..evidence.command import command_reading

    lines = []
    for change in plan.changes:
        if _stays(plan, change):
            continue
        title = _title(change)
        new = _shown(change.new)
        old = "not set" if change.old is None else show_value(change.old)
        if plan.persist and same_value(change.old, change.new):
            in_file = command_reading(plan.old_command, find_knob(change.knob))
            written = show_value(in_file.value) if in_file.known is Known.VALUE else "not set"
            lines.append((f"{title}: {new} in effect already; in the file {written} → {new}", "a restart keeps it then"))
            continue
        proof = f"proven by {change.how}" if change.confirmable else "applied, not confirmable"
        lines.append((f"{title}: {old} → {new}", proof))
    return lines


def unchanged_words(plan: Plan) -> str:
    """The settings that stay and are proven again in the new start, in one line; empty when there are none."""
    same = [f"{_title(change)} {_shown(change.new)}" for change in plan.changes if _stays(plan, change)]
    # Without a command that could be read, nothing is known to be written.
    now = "as written now" if plan.old_command else "as before"
    return f"{now}, and proven again: {', '.join(same)}" if same else ""


def _stays(plan: Plan, change: KnobChange) -> bool:
    """Whether the setting is in the plan only to be proven: neither the value nor what is written changes."""
    from ..evidence.command import command_reading

    if plan.mode.value != "restart" or not same_value(change.old, change.new):
        return False
    if not plan.old_command:
        return True
    knob = find_knob(change.knob)
    before, after = command_reading(plan.old_command, knob), command_reading(plan.command, knob)
    return before.known is after.known and same_value(before.value, after.value)


def _title(change: KnobChange) -> str:
    knob = KNOBS.get(change.knob)
    return change.knob if knob is None else knob.title


def _shown(value: Value | None) -> str:
    return "left to the engine" if value is None else show_value(value)
