"""Themes from TOML files: the console's own and the user's."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from textual.color import Color, ColorParseError
from textual.theme import Theme

from ..paths import read_file

DEFAULT_THEME = "ddtree-dark"

_COLOURS = frozenset(
    {"primary", "secondary", "accent", "success", "warning", "error", "foreground", "background", "surface", "panel"}
)


class ThemeError(ValueError):
    """A theme file cannot be used; the message names the file, the key and what is wrong."""


def read_theme(text: str, origin: str) -> Theme:
    """The theme that a TOML text describes; ``origin`` names the file in errors.

    Tables: ``[colors]`` (Textual's colour roles), ``[plot]`` (``decode``, ``commit``, ``baseline``, ``mark``, ``axis``) and
    ``[variables]`` (any further stylesheet variables).

    Raises:
        ThemeError: not TOML, no name, an unknown colour role, or a value that is no colour.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ThemeError(f"{origin}: not valid TOML: {error}") from None
    except RecursionError:
        raise ThemeError(f"{origin}: not valid TOML: nested too deeply") from None
    name = data.get("name")
    if not isinstance(name, str) or not name:
        raise ThemeError(f'{origin}: a theme needs a name, such as name = "my-theme"')
    colours = _colours(data.get("colors", {}), origin, "colors")
    unknown = sorted(set(colours) - _COLOURS)
    if unknown:
        raise ThemeError(f"{origin}: [colors] has no role {unknown[0]}; known: {', '.join(sorted(_COLOURS))}")
    if "primary" not in colours:
        raise ThemeError(f"{origin}: [colors] needs primary")
    plot = {f"plot-{key}": value for key, value in _colours(data.get("plot", {}), origin, "plot").items()}
    variables = _colours(data.get("variables", {}), origin, "variables")
    roles: dict[str, str | None] = {role: colours.get(role) for role in _COLOURS - {"primary"}}
    return Theme(
        name=name,
        primary=colours["primary"],
        secondary=roles["secondary"],
        accent=roles["accent"],
        success=roles["success"],
        warning=roles["warning"],
        error=roles["error"],
        foreground=roles["foreground"],
        background=roles["background"],
        surface=roles["surface"],
        panel=roles["panel"],
        dark=data.get("dark") is not False,
        variables={**variables, **plot},
    )


def _colours(table: object, origin: str, where: str) -> dict[str, str]:
    if not isinstance(table, Mapping):
        raise ThemeError(f"{origin}: {where} must be a table of colours")
    colours: dict[str, str] = {}
    for key, value in table.items():
        try:
            Color.parse(str(value))
        except ColorParseError:
            raise ThemeError(f"{origin}: [{where}] {key} = {value!r} is no colour; write for example #7aa2f7") from None
        colours[str(key)] = str(value)
    return colours


def load_themes(folders: tuple[Path, ...]) -> tuple[tuple[Theme, ...], tuple[str, ...]]:
    """All themes of the folders, later ones winning by name, and one sentence for each file that cannot be used."""
    themes: dict[str, Theme] = {}
    problems: list[str] = []
    for folder in folders:
        for path in sorted(folder.glob("*.toml")):
            try:
                theme = read_theme(read_file(path).decode("utf-8-sig"), path.name)
            except ThemeError as error:
                problems.append(str(error))
            except OSError as error:
                problems.append(f"{path.name}: cannot be read: {error.strerror}")
            except UnicodeDecodeError as error:
                problems.append(f"{path.name}: is not UTF-8 text (byte {error.start})")
            else:
                themes[theme.name] = theme
    return tuple(themes.values()), tuple(problems)
