"""``drift``: each setting as every source gives it, and the verdict in words."""

from __future__ import annotations

import asyncio

from ..drift import TruthRow, TruthTable, Verdict, drift_items, truth_table, witnesses_of
from ..drift.verdicts import PORT, UNIT_FILE
from ..evidence.reading import Known, Reading
from ..formats import shorten
from ..knobs import Source
from ..state import HostState
from .context import Context
from .options import DriftOptions
from .outcome import ExitCode
from .output import Cell, JsonValue, Output, Tone

WIDEST_CELL = 30


def run(context: Context, options: DriftOptions) -> ExitCode:
    return asyncio.run(_drift(context))


async def _drift(context: Context) -> ExitCode:
    async with context.session() as session:
        await session.watcher.settled()
        state = await session.watcher.gpus_settled()
    table = truth_table(state)
    if context.output.json_wanted:
        context.output.document({"items": [row_json(row) for row in table.rows]})
    else:
        print_drift(context.output, state, table)
    if drift_items(table):
        return ExitCode.DRIFT
    # Nobody can say that the sources agree while one of them cannot be read.
    return ExitCode.FAILED if state.unread_config else ExitCode.FINE


def row_json(row: TruthRow) -> dict[str, JsonValue]:
    """One setting: its value per source (``null`` = unknown or not named there) and the verdict."""
    values = {source.value: _json(row.readings.get(source)) for source in Source}
    return {"knob": row.knob, **values, "verdict": row.verdict.value, "message": row.message}


def _json(reading: Reading | None) -> JsonValue:
    return reading.value if reading is not None and reading.known is Known.VALUE else None


def _text(reading: Reading | None) -> str | Cell:
    if reading is None or reading.known is Known.UNKNOWN:
        return Cell("?", Tone.FAINT)
    if reading.known is Known.ABSENT:
        return Cell("–", Tone.FAINT)
    # A path says most at its end; the JSON has it whole.
    return shorten(reading.words, WIDEST_CELL, keep_end="/" in reading.words)


def print_drift(output: Output, state: HostState, table: TruthTable) -> None:
    """For people: the whole table, or what can be wrong beside a unit that does not run."""
    if witnesses_of(state).running:
        print_table(output, table)
        return
    if state.unread_config:
        output.line(f"{state.unit} is not running, and what its unit file asks for is not known")
    else:
        output.line(f"{state.unit} is not running, so no setting can disagree with its unit file yet")
    for row in table.rows:
        if row.verdict is Verdict.DRIFT or row.knob in (PORT, UNIT_FILE):
            output.line(f"{row.verdict.symbol} {row.message}", tone_of(row))


def tone_of(row: TruthRow) -> Tone | None:
    return {Verdict.DRIFT: Tone.BAD, Verdict.NOTE: Tone.CAUTION}.get(row.verdict)


def print_table(output: Output, table: TruthTable) -> None:
    """The table and, under it, one sentence for each row that is not fine."""
    output.table(
        [
            [
                row.knob,
                *(_text(row.readings.get(source)) for source in Source),
                Cell(f"{row.verdict.symbol} {row.verdict.value}", tone_of(row)),
            ]
            for row in table.rows
        ],
        header=["setting", *(source.value for source in Source), "verdict"],
    )
    said = [row for row in table.rows if row.message]
    if said:
        output.line()
        output.table([[Cell(row.verdict.symbol, tone_of(row)), row.knob, row.message] for row in said], wrap=True)
