"""A coloured line of a log, pasted in tmux: text for the field in focus, and no key that is pressed."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from .tmux import Terminal

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")]

PROGRAM = """
from textual.app import App
from textual.widgets import Static
from dflash_console.tui.pasting import PasteDriver

class Seen(App):
    seen = []
    def compose(self):
        yield Static("ready")
    def on_key(self, event):
        self.show("key " + event.key)
    def on_paste(self, event):
        self.show("paste " + repr(event.text))
    def show(self, words):
        self.seen.append(words)
        self.query_one(Static).update("; ".join(self.seen), layout=True)

Seen(driver_class=PasteDriver).run()
"""


def test_what_follows_an_escape_character_in_a_paste_presses_no_key(tmp_path: Path) -> None:
    with Terminal(tmp_path, (sys.executable, "-c", PROGRAM)) as terminal:
        terminal.wait_for("ready")
        terminal.paste("see \x1b[31mERROR\x1b[0m: r")
        terminal.press("x")
        shown = terminal.wait_for("key x")
        assert "paste 'see [31mERROR[0m: r'; key x" in shown
        assert shown.count("key") == 1
