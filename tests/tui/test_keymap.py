"""Every key can be put elsewhere by the configuration file, also those of dialogs."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module

from textual.binding import Binding
from textual.dom import DOMNode

from dflash_console import tui
from dflash_console.tui.all_bindings import all_bindings
from dflash_console.tui.keymap import APP_BINDINGS, check_keymap
from dflash_console.tui.link import Control
from dflash_console.tui.screens.confirm import ConfirmScreen
from dflash_console.tui.widgets.key_line import KeyLine

from .conftest import MakeApp
from .driving import notices, running, until
from .support import RecordedLink, state


def bindings_of_the_code() -> Iterator[Binding]:
    """The bindings of every widget and screen that a module of the screens defines."""
    for module in pkgutil.walk_packages(tui.__path__, f"{tui.__name__}."):
        for value in vars(import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, DOMNode) and value.__module__ == module.name:
                yield from (binding for binding in vars(value).get("BINDINGS", ()) if isinstance(binding, Binding))


def test_every_binding_has_a_name_that_the_configuration_file_can_use_and_words_that_stand_alone() -> None:
    known = {binding.id for binding in all_bindings()}
    found = list(bindings_of_the_code())
    assert len(found) > len(APP_BINDINGS)
    assert [binding.action for binding in found if binding.id not in known] == []
    assert [binding.id for binding in all_bindings() if not binding.tooltip] == []


def test_a_key_that_is_given_to_two_actions_is_told_and_an_exchange_is_none() -> None:
    assert check_keymap({}) == ({}, ())
    assert check_keymap({"operation.restart": "1"})[1] == (
        "keymap: 1 is the key of screen.dashboard and of operation.restart: only one of them can be reached by it",
    )
    assert check_keymap({"operation.restart": "1", "screen.dashboard": "r"})[1] == ()


async def test_a_dialog_answers_to_the_keys_of_the_configuration_file(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    app = make_app(link, keymap={"dialog.yes": "j", "dialog.no": "f2"})
    async with running(app) as pilot:
        assert notices(app) == ""
        await pilot.press("r")
        assert isinstance(app.screen, ConfirmScreen)
        await until(lambda: "f2 no" in str(app.screen.query_one(KeyLine).render()), "the keys in the last line")
        await pilot.press("y", "enter", "n")
        assert isinstance(app.screen, ConfirmScreen), "the keys of before do nothing"
        await pilot.press("j")
        await until(lambda: link.controls == [Control.RESTART], "the answer")
