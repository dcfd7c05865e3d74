"""What the configuration file has to say to the screens: theme, keys, folders; taken as far as it can be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from textual.app import App

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
    folders = (themes_folder(),) + ((settings.user_themes,) if settings.user_themes else ())
    themes, problems = load_themes(folders)
    for theme in themes:
        app.register_theme(with_few_colours(theme) if settings.few_colours else theme)
    wanted = settings.theme
    names = [name for name in (wanted, f"ddtree-{wanted}") if name in app.available_themes]
    if not names:
        own = ", ".join(sorted(theme.name.removeprefix("ddtree-") for theme in themes))
        problems += (f"there is no theme {wanted}; known: {own}, and those of Textual, such as nord",)
    app.theme = names[0] if names else DEFAULT_THEME
    return frozenset(theme.name for theme in themes), problems


def _set_keys(app: App[None], settings: ConsoleSettings) -> tuple[Mapping[str, str], tuple[str, ...]]:
    keys, problems = check_keymap(settings.keymap)
    if keys:
        app.set_keymap(keys)
    return keys, problems


def unknown_actions(settings: ConsoleSettings) -> tuple[str, ...]:
    """A sentence for each entry of the keymap that names no action. Imports every screen and dialog, so it waits for the first
    paint."""
    if not settings.keymap:
        return ()
    from .all_bindings import all_bindings

    known = {binding.id for binding in all_bindings()}
    return tuple(f"keymap: there is no action {name}; ? lists them" for name in settings.keymap if name not in known)
