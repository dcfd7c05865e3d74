"""What the configuration file has to say to the screens: theme, keys, folders; taken as far as it can be."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from textual.app import App
from textual.theme import BUILTIN_THEMES, Theme

from .few_colours import with_few_colours
from .keymap import check_keymap
from .resources import themes_folder
from .themes import DEFAULT_THEME, load_themes


@dataclass(frozen=True)
class ConsoleSettings:
    """What the console takes from the configuration file."""

    theme: str = DEFAULT_THEME
    keymap: Mapping[str, str] = field(default_factory=dict)
    user_themes: Path | None = None
    exports: Path | None = None
    """Where saved logs and answers go."""
    crashes: Path | None = None
    """Where reports of the console's own errors go; ``None`` shows them as Textual does."""
    few_colours: bool = False
    """The terminal shows 256 colours or fewer: the themes are fitted to them."""


@dataclass(frozen=True)
class Looks:
    """What became of theme and keys."""

    user_themes: frozenset[str]
    """Names of the themes from the user's own folder."""
    keys: Mapping[str, str]
    """Binding id → the user's keys for it."""
    problems: tuple[str, ...]
    """A sentence for each thing that could not be used."""


def dress(app: App[None], settings: ConsoleSettings) -> Looks:
    """Register all themes, choose the one that is wanted, and put the user's keys in place."""
    names, theme_problems = _set_theme(app, settings)
    keys, key_problems = _set_keys(app, settings)
    return Looks(names, keys, (*theme_problems, *key_problems))


def _set_theme(app: App[None], settings: ConsoleSettings) -> tuple[frozenset[str], tuple[str, ...]]:
    themes, problems = load_themes(_theme_folders(settings))
    for theme in themes:
        app.register_theme(with_few_colours(theme) if settings.few_colours else theme)
    names = _theme_names(settings.theme, app.available_themes)
    if not names:
        problems += (_no_theme(settings.theme, themes),)
    app.theme = names[0] if names else DEFAULT_THEME
    return frozenset(theme.name for theme in themes), problems


def _theme_folders(settings: ConsoleSettings) -> tuple[Path, ...]:
    return (themes_folder(),) + ((settings.user_themes,) if settings.user_themes else ())


def _theme_names(wanted: str, known: Container[str]) -> list[str]:
    """The names by which there is such a theme, the one to take first."""
    return [name for name in (wanted, f"ddtree-{wanted}") if name in known]


def _no_theme(wanted: str, themes: Iterable[Theme]) -> str:
    own = ", ".join(sorted(theme.name.removeprefix("ddtree-") for theme in themes))
    return f"there is no theme {wanted}; known: {own}, and those of Textual, such as nord"


def _set_keys(app: App[None], settings: ConsoleSettings) -> tuple[Mapping[str, str], tuple[str, ...]]:
    keys, problems = check_keymap(settings.keymap)
    if keys:
        app.set_keymap(keys)
    return keys, problems


def keymap_problems(settings: ConsoleSettings) -> tuple[str, ...]:
    """What only the screens' own keys tell of the keymap. Imports every screen and dialog, so it waits for the first paint."""
    if not settings.keymap:
        return ()
    from . import all_bindings

    return all_bindings.keymap_problems(settings.keymap)


def all_problems(settings: ConsoleSettings) -> tuple[str, ...]:
    """Everything that the screens would say of theme and keys, without opening them."""
    themes, problems = load_themes(_theme_folders(settings))
    known = {*BUILTIN_THEMES, *(theme.name for theme in themes)}
    if not _theme_names(settings.theme, known):
        problems += (_no_theme(settings.theme, themes),)
    return (*problems, *check_keymap(settings.keymap)[1], *keymap_problems(settings))
