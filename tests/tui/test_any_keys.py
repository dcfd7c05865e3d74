"""Whatever keys are pressed, however fast: what is on top is what is painted, nothing fails, and escape leads back."""

from __future__ import annotations

import asyncio
import os
import random
import unicodedata
from collections import defaultdict
from pathlib import Path

import pytest
from textual import events
from textual.keys import REPLACED_KEYS, _character_to_key, _get_unicode_name_from_key

from dflash_console.state import HostState
from dflash_console.tui.app import ConsoleApp, ConsoleSettings

from .driving import until
from .fleets import a_fleet, on_host
from .painting import Painting
from .support import STOPPED_CLOCK, T0, RecordedLink
from .uneasy import UneasyLink, a_past, choose_unit, fail_to_connect

OFTEN = ("r", "u", "n", "y", "enter", "escape", "X", "a", "b", "x")
"""Keys that open, answer and leave questions."""
KEYS = (
    *OFTEN * 3,
    *"123457kKBwWsopPqzmdeflcgGtNTvDR/:?!-+[]=* ",
    *("tab", "shift+tab", "up", "down", "left", "right", "pageup", "pagedown", "home", "end", "space", "backspace", "delete"),
    *("f1", "f5", "ctrl+p", "ctrl+c", "ctrl+q", "ctrl+z", "ctrl+u"),
)
TEXTS = ("return", "rerun the prompt", "un u n r", "a\n", "ry", "r\n", "X\n", ":restart\n", ":help\n", "pHello\n", "uy", "5 hi\n")
"""What people type when they believe to be somewhere else."""
SEEDS = int(os.environ.get("KEY_SEEDS", "3"))
"""More of them look further: a hundred take minutes."""
PRESSES = 120
SETTLE_S = 20.0
"""Longest wait for a screen to be painted, on a machine that is busy with other things."""


def key_event(key: str) -> events.Key:
    """As a terminal's driver makes it."""
    if key == "\n":
        key = "enter"
    if len(key) == 1 and not key.isalnum():
        key = _character_to_key(key)
    try:
        character: str | None = unicodedata.lookup(_get_unicode_name_from_key(REPLACED_KEYS.get(key, key)))
    except KeyError:
        character = key if len(key) == 1 else None
    return events.Key(key, character)


class Console(ConsoleApp):
    """The console, which no key ends."""

    def exit(self, *args: object, **keywords: object) -> None:
        pass


def uneasy_console(rng: random.Random, folder: Path) -> tuple[Console, list[UneasyLink]]:
    """A console on hosts of :mod:`.uneasy`, and those that it opened."""
    links: list[UneasyLink] = []

    def link(*states: HostState) -> UneasyLink:
        links.append(UneasyLink(rng, *states, past=a_past(rng, T0 + 134)))
        return links[-1]

    async def open_link() -> RecordedLink:
        fail_to_connect(rng)
        return link()

    def open_another(unit: str | None) -> RecordedLink:
        fail_to_connect(rng)
        if unit is None and rng.random() < 0.3:
            raise choose_unit()
        return link(on_host("gpu-a"))

    fleet = a_fleet()
    # Any name: keys can add hosts.
    fleet.links = defaultdict(lambda: open_another, {"embedded": lambda unit: link()})
    settings = ConsoleSettings(exports=folder / "exports")
    return Console(open_link, settings, clock=STOPPED_CLOCK, host="embedded", fleet=fleet), links


class Keyboard:
    """Presses keys, and knows what should be on the terminal when all of them have been dealt with."""

    def __init__(self, app: ConsoleApp, painting: Painting) -> None:
        self._app = app
        self._painting = painting
        self.pressed: list[str] = []

    def press(self, key: str) -> None:
        """Press a key; does not wait."""
        self.pressed.append(key)
        self._app.post_message(key_event(key))

    async def settled(self) -> None:
        """Wait until the top of the stack is alive, laid out and painted. Paints nothing itself, as a pilot's pause would."""
        for _ in range(3):  # a key may be on its way from one widget to the next
            await until(self._quiet, f"an end of {self.pressed}", SETTLE_S)
            await asyncio.sleep(0.01)
        try:
            await until(self._right, "", SETTLE_S)
        except AssertionError:
            pytest.fail(f"{self.pressed}\n{self._app.screen_stack}\n{self._painting.differences()}")

    def _quiet(self) -> bool:
        app = self._app
        if app._exception is not None:
            raise app._exception
        nodes = (app, *app.screen_stack, *app.screen_stack[0].walk_children(), *app.screen.walk_children())
        return all(node._message_queue.empty() for node in nodes)

    def _right(self) -> bool:
        return self._quiet() and not self._app._batch_count and self._app.screen.is_running and not self._painting.differences()


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_any_keys(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    app, links = uneasy_console(rng, tmp_path)
    keyboard = Keyboard(app, Painting(app))
    async with app.run_test(size=rng.choice(((80, 24), (120, 40), (200, 60)))):
        await asyncio.sleep(rng.random() * 0.3)
        while len(keyboard.pressed) < PRESSES:
            burst = rng.choice(TEXTS) if rng.random() < 0.2 else rng.choices(KEYS, k=rng.randrange(1, 8))
            for key in burst:
                keyboard.press(key)
                if rng.random() < 0.3:
                    await asyncio.sleep(rng.random() * 0.05)
            await asyncio.sleep(rng.choice((0, 0, 0.01, 0.1)))
            if rng.random() < 0.1:
                await keyboard.settled()
        await keyboard.settled()
        await until(lambda: app.model.busy == "", "the end of what runs")
        for _ in range(12):
            await keyboard.settled()
            if len(app.screen_stack) == 1:
                break
            keyboard.press("escape")
            await asyncio.sleep(0.05)
        assert len(app.screen_stack) == 1, f"escape leads back after {keyboard.pressed}"
        assert all(link.most <= 1 for link in links), "one operation at a time"
