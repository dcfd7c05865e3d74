"""A panel paints the rows that changed, and all of them when lines and rows do not go together."""

from __future__ import annotations

import pytest
from rich.console import RenderableType
from rich.text import Text
from textual.app import App, ComposeResult
from textual.screen import Screen

from dflash_console.tui.widgets.panel import Panel


class OnePanel(App[None]):
    """Keeps which rows each paint of the screen covers."""

    CSS = "Panel { width: 20; height: 5; border: none; }"

    def __init__(self) -> None:
        super().__init__()
        self.rows: set[int] = set()

    def compose(self) -> ComposeResult:
        yield Panel("one")

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        spans = getattr(renderable, "spans", None)
        self.rows.update(range(self.size.height) if spans is None else (row for row, _, _ in spans))
        super()._display(screen, renderable)


@pytest.mark.parametrize(
    ("lines", "painted"),
    [
        (["same", "other", "same"], {1}),
        (["same", "same", "same"], set()),
        (["a line that is longer than the panel", "same", "same"], set(range(5))),
        (["same", "same"], set(range(5))),
    ],
)
async def test_only_rows_that_changed_are_painted(lines: list[str], painted: set[int]) -> None:
    app = OnePanel()
    async with app.run_test() as pilot:
        panel = app.query_one(Panel)
        panel.show_lines([Text("same")] * 3)
        await pilot.pause()
        app.rows.clear()
        panel.show_lines([Text(line) for line in lines])
        await pilot.pause()
        assert app.rows == painted
