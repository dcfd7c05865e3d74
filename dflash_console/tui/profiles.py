"""Saving the present settings under a name, and taking a profile's settings into the change being put together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..knobs import KNOBS, Value, find_knob, show_value
from .facts import current_value
from .link import LinkError
from .work import begin

if TYPE_CHECKING:
    from .app import ConsoleApp

PROFILE_KNOBS = ("algorithm", "speculation", "draft_window", "layers_window", "tree_budget", "tree_topk")
"""What a profile holds when the present settings are saved: the axes of tuning, not ports and paths."""


def save_profile(app: ConsoleApp, name: str) -> None:
    """Keep what is in effect, with the edits, as the profile ``name``; secrets are left out."""
    link, state = app.link, app.model.state
    if link is None or state is None:
        return
    settings: dict[str, Value] = {}
    for knob in PROFILE_KNOBS:
        value = app.model.change.wanted(knob, current_value(state, knob))
        if value is not None:
            settings[knob] = value
    settings.update(app.model.change.values)
    # The configuration file is no place for keys and passwords.
    left_out = [name for name in settings if find_knob(name).secret]
    for secret in left_out:
        del settings[secret]
    without = f"; not {', '.join(left_out)}: a secret is not written into the configuration file" if left_out else ""

    async def save() -> None:
        try:
            await link.save_profile(name, settings)
        except LinkError as error:
            app.notify(str(error), severity="error", markup=False)
        else:
            app.notify(f"Profile {name} saved: {words(settings)}{without}", markup=False)

    begin(app, save, "saving a profile")


def choose_profile(app: ConsoleApp) -> None:
    """Show the profiles beside what is in effect; the chosen one goes into the change."""
    from .screens.profiles import ProfilesScreen

    link, state = app.link, app.model.state
    if link is None or state is None:
        return

    async def load() -> None:
        try:
            profiles = await link.profiles()
        except LinkError as error:
            app.notify(str(error), severity="error", markup=False)
            return
        if not profiles:
            app.notify("There is no profile yet: P saves the present settings as one.", severity="warning")
            return
        now = {knob: current_value(state, knob) for settings in profiles.values() for knob in settings if knob in KNOBS}
        app.push_screen(ProfilesScreen(profiles, now), take)

    def take(settings: Mapping[str, Value] | None) -> None:
        for knob, value in (settings or {}).items():
            app.edit(knob, value)

    begin(app, load, "reading the profiles")


def words(settings: Mapping[str, Value]) -> str:
    """``algorithm DDTREE, compact draft cache off, budget 8``."""
    return ", ".join(f"{_SHORT.get(name, name)} {show_value(value)}" for name, value in settings.items())


_SHORT = {
    "draft_window": "compact draft cache",
    "layers_window": "layers' window",
    "tree_budget": "budget",
    "tree_topk": "top-k",
}
