"""The real program in a real terminal with the real embedded engine: the console's main job from the first minute on."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .tmux import Terminal

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
]

CONSOLE = (sys.executable, "-m", "dflash_console")
PATIENCE = 120.0
"""Seconds for a model load on a machine that is busy with other things."""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A folder for everything that the console keeps; the engine started there is stopped at the end."""
    yield tmp_path
    subprocess.run([*CONSOLE, "stop", "--yes"], env=environment(tmp_path), capture_output=True, check=False, timeout=60)


def environment(home: Path) -> dict[str, str]:
    import os

    return {**os.environ, "DDTREE_HOME": str(home)}


def plotted(screen: str) -> int:
    """Cells of the screen with a piece of a curve in them."""
    return len(re.findall("[\u2801-\u28ff]", screen))


def test_open_prompt_watch_change_and_confirm(home: Path) -> None:
    # A shell that stays, for what is printed when the screens are gone.
    stays = ("sh", "-c", '"$@"; exec sleep 600', "sh", *CONSOLE)
    with Terminal(home, stays, environment=environment(home)) as terminal:
        terminal.wait_for("1 Dashboard")
        terminal.wait_for("a small model on this CPU")
        terminal.wait(lambda shown: "● running" in shown and "✓ confirmed" in shown, "a confirmed engine", PATIENCE)
        before = plotted(terminal.screen())

        terminal.press("p")
        terminal.wait_for("Prompt")
        terminal.type("Write a Python function that adds two numbers.")
        terminal.press("Enter")
        terminal.wait(lambda shown: "commit " in shown and "tok/s · " in shown, "the answer's figures", PATIENCE)
        terminal.wait(lambda shown: plotted(shown) > before, "a plot that moves")

        terminal.press("Escape", "b")
        terminal.wait_for("tree budget 8 → 12")
        terminal.press("a")
        terminal.wait_for("now, without a restart")
        # A plan that was slow to come takes keys, and names them, once the keyboard has rested.
        terminal.wait_for("⏎ apply")
        terminal.press("Enter")
        terminal.wait(lambda shown: re.search(r"│\s+✓ confirmed", shown) is not None, "the hot change confirmed", PATIENCE)
        terminal.press("Escape")
        terminal.wait_for("budget 12")

        terminal.press("w", "a")
        terminal.wait_for("Compact draft cache: off → 512")
        terminal.wait_for("m hot/restart")
        terminal.press("m")
        terminal.wait_for("Effective command")
        terminal.wait_for("⏎ apply")
        terminal.press("Enter")
        terminal.wait(lambda shown: re.search(r"│\s+✓ confirmed", shown) is not None, "the restart confirmed", PATIENCE)
        terminal.wait(lambda shown: "✓ restart" in shown and re.search(r"← log line \d+", shown) is not None, "its evidence")
        terminal.press("Escape")
        terminal.wait(lambda shown: "compact draft cache 512" in shown, "the compact draft cache in the header")

        terminal.press("3")
        terminal.wait_for("trained")
        terminal.press("4", "c")
        terminal.wait_for("Initialized DDTREE draft runner")
        terminal.press("q")
        terminal.wait_for("runs on. This stops it: ")


def test_the_screens_fit_small_and_large_terminals(home: Path) -> None:
    config = home / "config"
    config.mkdir()
    (config / "config.toml").write_text("read_only = true\n")
    with Terminal(home, CONSOLE, size=(80, 24), environment={**environment(home), "NO_COLOR": "1"}) as terminal:
        terminal.wait_for("○ stopped", 60)
        for width, height in ((80, 24), (240, 70), (120, 40)):
            terminal.resize(width, height)
            for key in "12345":
                terminal.press(key)
                shown = terminal.wait(lambda shown: "? help" in shown, "the last line", 20)
                assert max(len(line) for line in shown.split("\n")) <= width
        terminal.press("q")


def test_a_broken_configuration_file_is_told_with_its_line_and_keeps_nothing_from_opening(home: Path) -> None:
    config = home / "config"
    config.mkdir()
    (config / "config.toml").write_text('theme = "light"\n\n[sampling]\ninterval_s = "often"\n')
    with Terminal(home, (*CONSOLE, "--read-only"), environment=environment(home)) as terminal:
        terminal.wait(lambda shown: "line 4: sampling.interval_s" in " ".join(shown.split()), "the mistake with its line", 60)
        terminal.wait_for("○ stopped", 60)
        terminal.press("q")
