"""The drift table: settings down, sources across, the verdict in words beneath each row that needs one."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from rich.text import Text

from ...evidence.reading import Known, Reading
from ...formats import UNKNOWN, shorten
from ...knobs import Source, show_value
from .cursor_rows import CursorRows

if TYPE_CHECKING:
    from ...drift import TruthRow, TruthTable

_COLUMNS = {
    Source.TRAINED: "trained",
    Source.UNIT: "unit file",
    Source.LOADED: "loaded",
    Source.PROCESS: "process",
    Source.SERVER: "server",
    Source.LOG: "log",
}
_KEY_WORDS = {"a": "writes it down", "r": "restarts and confirms", "e": "carries the drop-in over, E removes it"}
_TONES = {"ok": "success", "note": "warning", "drift": "error", "not confirmable": "warning", "unknown": "quiet"}


class TruthView(CursorRows["TruthRow"], can_focus=True, inherit_bindings=False):
    """Rows with a cursor; the row under it shows where each value was read."""

    topic = "truth"

    def __init__(self, *, id: str) -> None:  # noqa: A002
        super().__init__("Truth", id=id)

    def show_table(self, table: TruthTable, *, running: bool) -> None:
        """Show the rows; ``running`` false says that nothing is in effect now."""
        self._put(table.rows)
        self.border_subtitle = verdict_words(table) if running else f"{verdict_words(table)} · the engine is not running"
        self.redraw()

    def paint(self, width: int) -> list[Text]:
        if not self._rows:
            return []
        title_width = min(24, max(20, width // 5))
        cell = max(6, (width - title_width - 3) // len(_COLUMNS))
        lines = [self._heading(title_width, cell)]
        self._tops = []
        said = ""
        for index, row in enumerate(self._rows):
            self._tops.append(len(lines))
            # One thing that could not be read keeps many rows from being judged: said once, it is easier to see.
            repeated = row.verdict.value == "unknown" and row.message == said
            said = row.message if row.verdict.value == "unknown" else said
            lines += self._row(row, title_width, cell, width, chosen=index == self._cursor, message=not repeated)
        return lines

    def _heading(self, title_width: int, cell: int) -> Text:
        line = Text("   " + "setting".ljust(title_width), style="dim", no_wrap=True)
        for name in _COLUMNS.values():
            line.append((name if len(name) < cell else name.split()[0]).ljust(cell))
        return line

    def _row(self, row: TruthRow, title_width: int, cell: int, width: int, *, chosen: bool, message: bool) -> list[Text]:
        variables = self.app.theme_variables
        colour = variables.get(_TONES[row.verdict.value], "")
        line = Text(no_wrap=True)
        line.append("▸" if chosen else " ", style=f"bold {variables.get('accent', '')}")
        line.append(f"{row.verdict.symbol} ", style=f"bold {colour}")
        line.append(shorten(row.title, title_width - 1).ljust(title_width), style="bold")
        for source in _COLUMNS:
            words, style = reading_words(row.readings.get(source))
            line.append(shorten(words, cell - 1).ljust(cell), style=style)
        lines = [line]
        if row.message and message:
            mend = f" · {row.key} {_KEY_WORDS.get(row.key, 'mends it')}" if row.key else ""
            lines += _wrapped(f"{row.message}{mend}", width, 4, "dim" if row.verdict.value == "ok" else colour)
        if chosen:
            for source, name in _COLUMNS.items():
                reading = row.readings.get(source)
                if reading is not None and (reading.where or reading.why):
                    said = f"{name}: {reading_words(reading)[0]}" + "".join(
                        f" · {part}" for part in (reading.where, reading.why) if part
                    )
                    lines += _wrapped(said, width, 6, "dim")
        return lines


def verdict_words(table: TruthTable) -> str:
    """``2 in drift``, ``6 not known yet``, and ``no drift`` only when every row could be judged."""
    items = table.drifted
    unknown = sum(row.verdict.value == "unknown" for row in table.rows)
    parts = [f"{len(items)} in drift"] if items else []
    parts += [f"{unknown} not known yet"] if unknown else []
    return " · ".join(parts) or "no drift"


def reading_words(reading: Reading | None) -> tuple[str, str]:
    """What a cell shows, and its style: ``–`` not named, ``?`` not read."""
    if reading is None:
        return "", "dim"
    if reading.known is Known.ABSENT:
        return UNKNOWN, "dim"
    if reading.known is Known.UNKNOWN:
        return reading.text or "?", "dim"
    return reading.text or show_value(reading.value), ""


def _wrapped(text: str, width: int, indent: int, style: str) -> list[Text]:
    """Words folded at ``width``, each line indented; a path that is too long for a line is cut into several."""
    parts = textwrap.wrap(text, max(10, width - indent), break_on_hyphens=False)
    return [Text(" " * indent + part, style=style, no_wrap=True) for part in parts]
