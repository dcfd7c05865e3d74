"""Every key can be put elsewhere by the configuration file, also those of dialogs."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module

import pytest
from textual.binding import Binding
from textual.dom import DOMNode

from dflash_console import tui
from dflash_console.tui.all_bindings import all_bindings, keymap_problems
from dflash_console.tui.keymap import APP_BINDINGS, check_keymap, is_key
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


@pytest.mark.parametrize(
    ("keymap", "said"),
    [
        ({"plan.apply": "escape"}, "keymap: esc is the key of plan.apply and of dialog.leave"),
        ({"dialog.leave": "enter"}, "keymap: enter is the key of plan.apply and of dialog.leave"),
        ({"log.search": "N"}, "keymap: N is the key of log.search and of log.previous"),
    ],
)
def test_a_key_that_a_dialog_or_a_screen_has_for_something_else_is_told(keymap: dict[str, str], said: str) -> None:
    assert any(said in problem for problem in keymap_problems(keymap)), keymap_problems(keymap)


def test_a_key_of_another_screen_is_free_and_so_is_one_that_was_given_away() -> None:
    assert keymap_problems({"log.search": "f9"}) == ()
    assert keymap_problems({"plan.apply": "escape", "dialog.leave": "f9"}) == ()
    as_they_are = {binding.id: binding.key for binding in all_bindings() if binding.id}
    assert keymap_problems(as_they_are) == ()
    assert check_keymap(as_they_are) == (as_they_are, ())


def test_a_key_that_no_terminal_sends_is_told_and_the_others_of_the_entry_work() -> None:
    assert check_keymap({"app.help": "f99"}) == ({}, ("keymap: app.help: no terminal sends a key called f99",))
    assert check_keymap({"app.help": "[red]"})[1] == ("keymap: app.help: no terminal sends a key called [red]",)
    assert check_keymap({"app.help": "hyper-x,f2"})[0] == {"app.help": "f2"}
    good = ("[", "é", "alt+x", "ctrl+f5,f6", "left_square_bracket", "minus", "pagedown", "shift+tab", "section_sign", "F")
    assert not [keys for keys in good if "no terminal" in str(check_keymap({"app.help": keys}))]
    assert check_keymap({"app.help": "["})[0] == {"app.help": "left_square_bracket"}
    for binding in all_bindings():
        assert all(is_key(key) for key in binding.key.split(",")), binding


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
