"""The tests' own view of a terminal: what should be on it."""

from __future__ import annotations

from dflash_console.tui.link import Control

from .conftest import MakeApp
from .driving import running, until
from .painting import Painting
from .test_operations import held_link


async def test_screens_below_are_wanted_though_the_top_one_changed_and_has_not_been_painted_since(make_app: MakeApp) -> None:
    app = make_app(held_link())
    painting = Painting(app)
    async with running(app):
        app.operations.control(Control.RESTART)
        await until(lambda: "4 of 9 shards" in painting.text and "Decode throughput" in painting.text, "the stages")
        app.screen.refresh()
        assert painting.differences() == ""
