"""The drift table: settings down, sources across, the verdict in words beneath each row that needs one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from ...evidence.reading import Known, Reading
from ...formats import UNKNOWN
from ...knobs import Source, show_value
from ..wrapping import in_column, wrapped
from .cursor_rows import CursorRows

if TYPE_CHECKING:
    from ...drift import TruthRow, TruthTable

IN_USE = "compact_cache"
"""The row that stands beneath the compact draft cache's."""
_COLUMNS = {
    Source.TRAINED: "trained",
    Source.UNIT: "unit file",
    Source.LOADED: "loaded",
    Source.PROCESS: "process",
    Source.SERVER: "server",
    Source.LOG: "log",
}
_BRIEF = {"unit file": "unit"}
_WIDEST = 24
"""Cells of a column where a value would take more: a path says enough at its end."""
_TITLE = (20, 23)
"""Cells of the titles, at least and at most; a longer one (a flag's name) has a line of its own."""
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
        cells = [[reading_words(row.readings.get(source))[0] for source in _COLUMNS] for row in self._rows]
        longest = max((len(title) for row in self._rows if len(title := _title(row)) < _TITLE[1]), default=0)
        title_width = max(_TITLE[0], longest + 1)
        widths = column_widths([list(column) for column in zip(*cells, strict=True)], width - title_width - 2)
        lines = [self._heading(title_width, widths)]
        self._tops = []
        said = ""
        for index, row in enumerate(self._rows):
            self._tops.append(len(lines))
            # One thing that could not be read keeps many rows from being judged: said once, it is easier to see.
            repeated = row.verdict.value == "unknown" and row.message == said
            said = row.message if row.verdict.value == "unknown" else said
            lines += self._row(row, title_width, widths, width, chosen=index == self._cursor, message=not repeated)
        return lines

    def _heading(self, title_width: int, widths: list[int]) -> Text:
        line = Text("   " + "setting".ljust(title_width), style="dim", no_wrap=True)
        for name, cell in zip(_COLUMNS.values(), widths, strict=True):
            line.append((name if len(name) < cell else _BRIEF.get(name, name)).ljust(cell))
        line.rstrip()
        return line

    def _row(self, row: TruthRow, title_width: int, widths: list[int], width: int, *, chosen: bool, message: bool) -> list[Text]:
        variables = self.app.theme_variables
        colour = variables.get(_TONES[row.verdict.value], "")
        line = Text(no_wrap=True)
        line.append("▸" if chosen else " ", style=f"bold {variables.get('accent', '')}")
        line.append(f"{row.verdict.symbol} ", style=f"bold {colour}")
        title = _title(row)
        lines = [line]
        if len(title) < title_width:
            line.append(title.ljust(title_width), style="bold")
        else:
            line.append(title, style="bold")
            line = Text(" " * (title_width + 3), no_wrap=True)
            lines.append(line)
        whole: dict[str, list[str]] = {}
        for (source, name), cell in zip(_COLUMNS.items(), widths, strict=True):
            words, style = reading_words(row.readings.get(source))
            line.append(in_column(words, cell, keep_end="/" in words), style=style)
            if cell_len(words) >= cell:
                whole.setdefault(words, []).append(name)
        line.rstrip()
        if not chosen:
            for words, names in whole.items():
                lines += _wrapped(f"{', '.join(names)}: {words}", width, 4, "dim")
        if row.message and message:
            mend = f" · {row.key} {_KEY_WORDS.get(row.key, 'mends it')}" if row.key else ""
            lines += _wrapped(f"{row.message}{mend}", width, 4, "dim" if row.verdict.value == "ok" else colour)
        if chosen:
            for source, name in _COLUMNS.items():
                reading = row.readings.get(source)
                if reading is not None and (reading.where or reading.why):
                    written = (
                        f"written as {reading.text}" if reading.known is Known.VALUE and reading.words != reading.text else ""
                    )
                    said = f"{name}: {reading_words(reading)[0]}" + "".join(
                        f" · {part}" for part in (reading.where, written, reading.why) if part
                    )
                    lines += _wrapped(said, width, 6, "dim")
        return lines


def verdict_words(table: TruthTable) -> str:
    """``2 in drift``, ``6 not known: log unreadable``, and ``no drift`` only when every row could be judged.

    *Yet* is said where waiting helps: nothing failed, and not all has been read.
    """
    items = table.drifted
    unknown = sum(row.verdict.value == "unknown" for row in table.rows)
    parts = [f"{len(items)} in drift"] if items else []
    why = f": {' and '.join(table.unreadable)} unreadable" if table.unreadable else " yet"
    parts += [f"{unknown} not known{why}"] if unknown else []
    return " · ".join(parts) or "no drift"


def reading_words(reading: Reading | None) -> tuple[str, str]:
    """What a cell shows, and its style: ``–`` not named, ``?`` not read."""
    if reading is None:
        return "", "dim"
    if reading.known is Known.ABSENT:
        return UNKNOWN, "dim"
    if reading.known is Known.UNKNOWN:
        return reading.text or "?", "dim"
    return reading.words or show_value(reading.value), ""


def column_widths(columns: Sequence[Sequence[str]], room: int) -> list[int]:
    """Cells for each column's values, one of them free behind each.

    Where there is too little room, paths give way first, the widest column before others; what is left over is shared out.
    """
    least = [len(_BRIEF.get(name, name)) + 1 for name in _COLUMNS.values()]
    needed = [
        _cells([words for words in column if "/" not in words], floor) for column, floor in zip(columns, least, strict=True)
    ]
    widths = [_cells(column, floor) for column, floor in zip(columns, needed, strict=True)]
    for floors in (needed, least):
        while sum(widths) > room and widths != floors:
            widest = max((i for i, cell in enumerate(widths) if cell > floors[i]), key=widths.__getitem__)
            widths[widest] -= 1
    spare = max(0, room - sum(widths))
    return [cell + spare // len(widths) + (index < spare % len(widths)) for index, cell in enumerate(widths)]


def _cells(column: Sequence[str], least: int) -> int:
    return max(least, min(_WIDEST, max(map(cell_len, column), default=0)) + 1)


def _title(row: TruthRow) -> str:
    """The compact draft cache has two rows, one for its size, and beneath it whether it is in use."""
    return "└ in use" if row.knob == IN_USE else row.title


def _wrapped(text: str, width: int, indent: int, style: str) -> list[Text]:
    """Words folded at ``width``, each line indented; a path that is too long for a line is cut into several."""
    parts = wrapped(text, max(10, width - indent))
    return [Text(" " * indent + part, style=style, no_wrap=True) for part in parts]
