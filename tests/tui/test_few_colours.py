"""Themes on terminals of 256 colours: greys stay grey, shades stay apart, words stay readable."""

from __future__ import annotations

import pytest
from rich.color import Color as RichColor
from rich.color import ColorSystem
from textual.color import Color
from textual.theme import Theme

from dflash_console.tui.few_colours import nearest, terminal_has_few_colours, with_few_colours
from dflash_console.tui.resources import themes_folder
from dflash_console.tui.themes import load_themes

from .colours import contrast

THEMES = {theme.name: with_few_colours(theme) for theme in load_themes((themes_folder(),))[0]}
GROUNDS = ("background", "surface", "panel")


def shown(colour: str) -> tuple[int, int, int]:
    """What such a terminal makes of a colour."""
    seen = RichColor.from_rgb(*Color.parse(colour).rgb).downgrade(ColorSystem.EIGHT_BIT).get_truecolor()
    return seen.red, seen.green, seen.blue


@pytest.mark.parametrize("theme", THEMES.values(), ids=lambda theme: theme.name)
def test_grounds_and_frames_are_greys_there(theme: Theme) -> None:
    colours = [getattr(theme, role) for role in GROUNDS] + [theme.variables[name] for name in ("border", "border-blurred")]
    for colour in colours:
        red, green, blue = shown(colour)
        assert max(red, green, blue) - min(red, green, blue) <= 10, colour


@pytest.mark.parametrize("theme", THEMES.values(), ids=lambda theme: theme.name)
def test_the_shades_of_verifies_stay_different(theme: Theme) -> None:
    grounds = [shown(str(theme.background))] + [shown(theme.variables[f"shade-{number}"]) for number in (1, 2, 3)]
    assert len(set(grounds)) == 4


@pytest.mark.parametrize("theme", THEMES.values(), ids=lambda theme: theme.name)
def test_words_stay_readable_there(theme: Theme) -> None:
    for role in ("foreground", "success", "warning", "error", "primary"):
        assert contrast(getattr(theme, role), str(theme.background)) >= 4.0, role
    assert contrast(theme.variables["quiet"], str(theme.background)) >= 4.5
    for number in (1, 2, 3):
        assert contrast(str(theme.foreground), theme.variables[f"shade-{number}"]) >= 4.5, number


def test_the_nearest_entry_is_the_one_that_looks_alike_and_not_the_one_rounded_channel_by_channel() -> None:
    assert nearest("#1f2530") == (38, 38, 38)
    assert shown("#1f2530") == (0, 0, 95)
    assert nearest("#8a93a8") == (148, 148, 148), "and no lavender where the theme has a grey"
    assert nearest("#1f2530", frozenset({(38, 38, 38)})) == (28, 28, 28)


@pytest.mark.parametrize(
    ("variables", "few"),
    [
        ({"TERM": "xterm-256color"}, True),
        ({"TERM": "tmux-256color"}, True),
        ({"TERM": "xterm"}, True),
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, False),
    ],
)
def test_the_terminal_says_how_many_colours_it_has(variables: dict[str, str], few: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TERM", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert terminal_has_few_colours() is few
