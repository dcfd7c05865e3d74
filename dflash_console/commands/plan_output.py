"""A plan as JSON and as text: what would be written and run, what to expect, what was found."""

from __future__ import annotations

import shlex

from ..formats import short_seconds, size
from ..knobs import same_value, show_value
from ..plan import Finding, Mode, Plan, Predictions, Severity
from .output import Cell, JsonValue, Output, Tone

_SEVERITIES = {
    Severity.ERROR: Cell("✗", Tone.BAD),
    Severity.WARNING: Cell("!", Tone.CAUTION),
    Severity.INFO: Cell("·", Tone.FAINT),
}


def plan_json(plan: Plan) -> dict[str, JsonValue]:
    """The whole plan; secrets in diff and command are masked."""
    return {
        "host": plan.host,
        "unit": plan.unit,
        "mode": plan.mode.value,
        "target": plan.target,
        "diff": plan.diff,
        "command": plan.shown_command,
        "changes": [
            {"knob": change.knob, "old": change.old, "new": change.new, "confirmable": change.confirmable, "how": change.how}
            for change in plan.changes
        ],
        "predictions": predictions_json(plan.predictions),
        "findings": [finding_json(finding) for finding in plan.findings],
        "undo_after_s": plan.undo_after_s,
        "blocked": plan.blocked,
    }


def finding_json(finding: Finding) -> dict[str, JsonValue]:
    return {
        "severity": finding.severity.value,
        "code": finding.code,
        "message": finding.message,
        "knob": finding.knob or None,
    }


def predictions_json(predictions: Predictions) -> dict[str, JsonValue]:
    return {
        "verify_width": predictions.verify_width,
        "verify_ms": predictions.verify_ms,
        "draft_kv_bytes_per_request": predictions.draft_kv_bytes_per_request,
        "draft_kv_bytes_total": predictions.draft_kv_bytes_total,
        "draft_kv_bytes_now": predictions.draft_kv_bytes_now,
        "context": predictions.context,
        "requests": predictions.requests,
        "restart_s": predictions.restart_s,
        "stage_seconds": dict(predictions.stage_seconds),
    }


def print_plan(output: Output, plan: Plan) -> None:
    """Everything that somebody needs to know before saying yes."""
    how = "while the engine runs" if plan.mode is Mode.HOT else "with a restart"
    output.line(f"{plan.unit} on {plan.host}, {how}", Tone.STRONG)
    for change in plan.changes:
        old = "not set" if change.old is None else show_value(change.old)
        new = "left to the engine" if change.new is None else show_value(change.new)
        way = f"stays {new}" if same_value(change.old, change.new) else f"{old} → {new}"
        output.line(f"  {change.knob}: {way}", Tone.STRONG)
        output.line(f"    confirmed by {change.how}" if change.confirmable else f"    {change.how}", Tone.FAINT)
    output.line()
    if plan.diff:
        for line in plan.diff.splitlines():
            output.line(line, Tone.GOOD if line.startswith("+") else Tone.BAD if line.startswith("-") else Tone.FAINT)
    else:
        output.line("no file changes", Tone.FAINT)
    if plan.mode is Mode.RESTART:
        output.line()
        output.line(f"runs: {shlex.join(plan.shown_command)}")
    if words := prediction_words(plan.predictions):
        output.line()
        output.line(f"expect: {words}")
    if plan.undo_after_s is not None:
        output.line(
            f"unless it is confirmed: {plan.host} itself puts the files back {short_seconds(plan.undo_after_s)} after the write"
        )
    if plan.findings:
        output.line()
        output.table([[_SEVERITIES[finding.severity], finding.message] for finding in plan.findings])


def prediction_words(predictions: Predictions) -> str:
    """Predictions in one line; what cannot be predicted is left out."""
    words = []
    if predictions.verify_width is not None:
        time = f", about {predictions.verify_ms:.0f} ms" if predictions.verify_ms is not None else ""
        words.append(f"verify width {predictions.verify_width}{time}")
    if predictions.draft_kv_bytes_per_request is not None and predictions.context is not None:
        text = f"draft KV {size(predictions.draft_kv_bytes_per_request)} per request at {predictions.context:,} tokens"
        if predictions.draft_kv_bytes_now not in (None, predictions.draft_kv_bytes_per_request):
            text += f" (now {size(predictions.draft_kv_bytes_now)})"
        words.append(text)
    if predictions.draft_kv_bytes_total is not None and predictions.requests is not None:
        words.append(f"{size(predictions.draft_kv_bytes_total)} for {predictions.requests} requests")
    if predictions.restart_s is not None:
        words.append(f"a restart takes about {short_seconds(predictions.restart_s)}")
    return " · ".join(words)
