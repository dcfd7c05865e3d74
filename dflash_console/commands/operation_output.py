"""An operation as it runs (one line a stage) and as it ended."""

from __future__ import annotations

from ..apply.records import ApplyResult, Stage, StageEvent, StageStatus, Verdict
from ..evidence.secrets import mask_text
from ..evidence.terminal_text import clean_line
from ..formats import short_seconds, shorten
from ..plan import Mode
from .outcome import ExitCode
from .output import JsonValue, Output, Tone

_MARKS = {
    StageStatus.RUNNING: ("▸", Tone.CAUTION),
    StageStatus.DONE: ("✓", Tone.GOOD),
    StageStatus.SKIPPED: ("·", Tone.FAINT),
    StageStatus.FAILED: ("✗", Tone.BAD),
}

_NOTHING_CHANGED = frozenset({Verdict.REFUSED, Verdict.UNNEEDED, Verdict.WRITE_FAILED})


class StagePrinter:
    """Prints each stage once, when it ends; on a terminal a stage of more than a moment is announced when it begins."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._announced = ""
        self._rolling_back = False

    def __call__(self, event: StageEvent) -> None:
        if self._output.json_wanted:
            return
        if event.rolling_back and not self._rolling_back:
            self._rolling_back = True
            self._output.line("rolling back to the previous configuration", Tone.CAUTION)
        stage = event.stage
        if stage.status is StageStatus.RUNNING:
            long = stage.expected_s is not None and stage.expected_s >= 2.0
            if long and self._announced != stage.name:
                self._announced = stage.name
                left = f", about {short_seconds(event.left_s)} left in all" if event.left_s else ""
                self._output.line(f"▸ {stage.name} (usually {short_seconds(stage.expected_s or 0)}{left})", Tone.FAINT)
            return
        mark, tone = _MARKS[stage.status]
        self._output.line(stage_line(mark, stage, self._output.columns), tone if stage.status is not StageStatus.DONE else None)


def stage_line(mark: str, stage: Stage, columns: int | None = None) -> str:
    """One stage in one line; in a terminal of ``columns`` the evidence gives way, not the line's number."""
    took = "" if stage.status is StageStatus.SKIPPED else short_seconds(stage.seconds)
    head = f"{mark} {stage.name:<12} {took:>7}  "
    where = f"  ← log line {stage.line}" if stage.line is not None else ""
    evidence = mask_text(clean_line(stage.evidence))
    if columns is not None:
        evidence = shorten(evidence, max(20, columns - len(head) - len(where)))
    return f"{head}{evidence}{where}".rstrip()


def result_json(result: ApplyResult) -> dict[str, JsonValue]:
    """How it ended, the roll-back (which is an operation of its own) within it."""
    return {
        "confirmed": result.confirmed,
        "verdict": result.verdict.value,
        "reason": result.reason,
        "mode": result.mode.value,
        "operation_id": result.operation_id,
        "invocation_id": result.invocation_id,
        "stages": [stage_json(stage) for stage in result.stages],
        "lines": [mask_text(line.text) for line in result.lines],
        "seconds": round(result.seconds, 3),
        "rolled_back": result.rolled_back,
        "rollback": result_json(result.rollback) if result.rollback is not None else None,
    }


def stage_json(stage: Stage) -> dict[str, JsonValue]:
    return {
        "name": stage.name,
        "status": stage.status.value,
        "seconds": round(stage.seconds, 3),
        "evidence": mask_text(stage.evidence) or None,
        "line": stage.line,
    }


def print_result(output: Output, result: ApplyResult) -> None:
    """The verdict in words, with the log lines that show the cause and the way back."""
    reason = mask_text(clean_line(result.reason))
    took = short_seconds(result.seconds)
    if result.confirmed:
        output.line(f"✓ confirmed in {took}: {reason}", Tone.GOOD)
        return
    if result.verdict is Verdict.UNNEEDED:
        output.line(f"✓ {result.verdict.value}: {reason}", Tone.GOOD)
        return
    if result.verdict is Verdict.REFUSED and not result.stages:
        # Not even begun: there is nothing that could have been confirmed.
        output.line(f"✗ {result.verdict.value}: {reason}", Tone.BAD)
        return
    failed_back = result.verdict is Verdict.ROLLBACK_FAILED
    outcome = result.verdict.value if failed_back and result.verdict.value not in reason else "not confirmed"
    output.line(f"{'?' if result.verdict is Verdict.UNKNOWN else '✗'} {outcome} after {took}: {reason}", Tone.BAD)
    for line in result.lines:
        if (text := mask_text(clean_line(line.text))) not in reason:
            output.line(f"  {text}", Tone.FAINT)
    if result.rolled_back:
        output.line("the previous configuration is back and confirmed", Tone.CAUTION)
    elif failed_back:
        # The same again would fail again; and what comes before it may not be what is wanted.
        output.line("see why with: ddtree-console logs --this-start; then mend that, and: ddtree-console start", Tone.CAUTION)
        output.line("another rollback goes further back, if anything is known, and shows where before it goes", Tone.CAUTION)
    elif not nothing_changed(result):
        output.line("go back to the last confirmed configuration with: ddtree-console rollback", Tone.CAUTION)


def nothing_changed(result: ApplyResult) -> bool:
    """The operation ended before it touched anything, or left all as it was."""
    # A hot change is written down last: by then the running engine has it.
    hot_and_not_written = result.mode is Mode.HOT and result.verdict is Verdict.WRITE_FAILED and not result.rolled_back
    return result.verdict in _NOTHING_CHANGED and not hot_and_not_written


def exit_code(result: ApplyResult) -> ExitCode:
    """What scripts see: nothing changed is a failure unless nothing had to be; changed and not confirmed is a third case."""
    if result.good:
        return ExitCode.FINE
    return ExitCode.FAILED if nothing_changed(result) else ExitCode.NOT_CONFIRMED
