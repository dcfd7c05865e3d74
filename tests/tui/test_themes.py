"""Themes from files: the console's own are good, a user's broken one is explained."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dflash_console.tui.resources import themes_folder
from dflash_console.tui.themes import ThemeError, load_themes, read_theme

from .colours import contrast


def test_a_dark_a_light_and_a_high_contrast_theme_come_with_the_console() -> None:
    themes, problems = load_themes((themes_folder(),))
    assert problems == ()
    assert {theme.name for theme in themes} == {"ddtree-dark", "ddtree-light", "ddtree-high-contrast"}


def test_every_colour_that_carries_words_is_readable_on_its_ground() -> None:
    for theme in load_themes((themes_folder(),))[0]:
        assert theme.background is not None
        least = 7.0 if theme.name == "ddtree-high-contrast" else 4.5
        for name in ("foreground", "success", "warning", "error", "accent", "primary"):
            value = getattr(theme, name)
            assert contrast(value, theme.background) >= least, f"{theme.name}: {name}"
        assert contrast(theme.variables["quiet"], theme.background) >= 4.5
        for shade in ("shade-1", "shade-2", "shade-3"):
            assert contrast(str(theme.foreground), theme.variables[shade]) >= least, f"{theme.name}: {shade}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name = ", "not valid TOML"),
        ("name = " + "[" * 5_000, "nested too deeply"),
        ("[colors]\nprimary = '#fff'", "needs a name"),
        ("name = 'x'\n[colors]\nprimary = 'sparkly'", "sparkly"),
        ("name = 'x'\n[colors]\nprimary = '#fff'\nprimray = '#fff'", "primray"),
        ("name = 'x'\n[plot]\ndecode = '#fff'", "needs primary"),
    ],
)
def test_a_broken_theme_says_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(ThemeError, match=says):
        read_theme(text, "mine.toml")


def test_a_broken_file_does_not_take_the_others_away(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("name = 'mine'\n[colors]\nprimary = '#abcdef'\n")
    (tmp_path / "bad.toml").write_text("nonsense")
    themes, problems = load_themes((themes_folder(), tmp_path))
    assert "mine" in {theme.name for theme in themes}
    assert len(problems) == 1
    assert "bad.toml" in problems[0]


def test_what_is_no_regular_file_is_no_theme_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "bytes.toml").write_bytes(b"name = '\xff'")
    themes, problems = load_themes((tmp_path,))
    assert not themes
    assert problems == ("bytes.toml: is not UTF-8 text (byte 8)", "pipe.toml: cannot be read: it is no regular file")
