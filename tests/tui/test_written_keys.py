"""A dialog that names keys in its text names those that are bound, whatever the user's keymap says."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from textual.widgets import Static

from dflash_console.tui.link import KeyQuestion
from dflash_console.tui.screens.host_key import HostKeyScreen
from dflash_console.tui.screens.unfinished import UnfinishedScreen

from .conftest import MakeApp
from .driving import running, until
from .support import RecordedLink, state

QUESTION = KeyQuestion("gpu-a", "ssh-ed25519", "SHA256:abc", "/home/me/.ssh/known_hosts")

AS_SHIPPED: Mapping[str, str] = {}
OTHERS = {"unfinished.resume": "g", "unfinished.undo": "Z,f2", "hostkey.accept": "J", "hostkey.refuse": "N", "dialog.leave": "Q"}


def unfinished() -> UnfinishedScreen:
    return UnfinishedScreen("apply on embedded/ddtree-embedded was cut off after 'write'")


def host_key() -> HostKeyScreen:
    return HostKeyScreen(QUESTION)


async def question_of(make_app: MakeApp, screen: UnfinishedScreen | HostKeyScreen, keymap: Mapping[str, str]) -> str:
    """What the dialog asks, a space for each break."""
    app = make_app(RecordedLink(state()), keymap=keymap)
    async with running(app):
        app.push_screen(screen)
        await until(lambda: bool(screen.query(".question")), "the question")
        return " ".join(str(screen.query_one(".question", Static).render()).split())


@pytest.mark.parametrize(
    ("keymap", "words"),
    [
        (AS_SHIPPED, "enter or r goes on and confirms it u shows the plan that restores what was before esc decides later"),
        (OTHERS, "g goes on and confirms it Z or f2 shows the plan that restores what was before Q decides later"),
    ],
    ids=["as shipped", "other keys"],
)
async def test_the_question_about_what_was_cut_off(make_app: MakeApp, keymap: Mapping[str, str], words: str) -> None:
    assert (await question_of(make_app, unfinished(), keymap)).endswith(words)


@pytest.mark.parametrize(
    ("keymap", "accepts", "refuses"),
    [
        (AS_SHIPPED, "y adds it to", "n, enter or esc: nothing is sent to the host."),
        (OTHERS, "J adds it to", "N or Q: nothing is sent to the host."),
    ],
    ids=["as shipped", "other keys"],
)
async def test_the_question_about_a_host_key(make_app: MakeApp, keymap: Mapping[str, str], accepts: str, refuses: str) -> None:
    shown = await question_of(make_app, host_key(), keymap)
    assert accepts in shown
    assert shown.endswith(refuses)
