"""The last line where there is no room for all keys: the most used ones stay."""

from __future__ import annotations

from dataclasses import replace

import pytest
from textual.app import App

from dflash_console.tui.keymap import NUMBERS
from dflash_console.tui.screens.plan import PlanScreen
from dflash_console.tui.widgets.key_line import KeyLine
from dflash_console.tui.widgets.prompt_dock import PromptDock

from .conftest import MakeApp
from .driving import running, until
from .support import RecordedLink, state

SMALL = (80, 24)


def line(app: App[None]) -> str:
    return str(app.screen.query_one(KeyLine).render())


async def test_on_the_dashboard_prompt_cache_budget_top_k_and_restart_stay(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app, size=SMALL):
        await until(lambda: "budget" in line(app), "the keys")
        assert line(app).split("  ")[:5] == [" p prompt", "w[] draft cache", "bB budget", "kK top-k", "r restart"]
        assert line(app).rstrip().endswith("? help  : palette")


async def test_with_a_change_apply_takes_the_place_of_what_is_needed_less(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app, size=SMALL) as pilot:
        await pilot.press("b")
        await until(lambda: "a apply" in line(app), "the key that applies")
        assert line(app).split("  ")[:5] == [" p prompt", "w[] draft cache", "bB budget", "kK top-k", "a apply"]


async def test_while_a_prompt_runs_its_stop_and_the_budget_are_both_there(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    link.hold.clear()
    app = make_app(link)
    async with running(app, size=SMALL) as pilot:
        await pilot.press("p", *"hi", "enter")
        await until(lambda: app.query_one(PromptDock).running, "a prompt that runs")
        await pilot.press("escape", "b")
        await until(lambda: "x stop" in line(app), "the key that stops it")
        assert all(keys in line(app) for keys in ("p prompt", "w[] draft cache", "bB budget", "a apply"))
        link.hold.set()


@pytest.mark.parametrize(
    ("pane", "keys"),
    [
        ("configure", ("⏎ edit", "+- value", "L profiles", "a apply", "r restart")),
        ("truth", ("⏎ mend", "a apply", "r restart", "u roll back")),
        ("logs", ("f follow", "/ search", "nN next", "l level", "w wrap")),
        ("playground", ("⏎ send", "e edit", "o suites")),
    ],
)
async def test_each_screen_keeps_its_own_keys_and_those_that_act(make_app: MakeApp, pane: str, keys: tuple[str, ...]) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app, size=SMALL) as pilot:
        await pilot.press("b", str(NUMBERS[pane]))
        await until(lambda: keys[0] in line(app), f"the keys of {pane}")
        assert all(key in line(app) for key in keys), line(app)
        assert len(line(app)) <= SMALL[0]


async def test_where_there_is_room_every_name_is_whole(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app, size=(160, 40)) as pilot:
        await pilot.press("b")
        await until(lambda: "a apply" in line(app), "the keys")
        names = ("w[] compact draft cache", "W layers", "bB budget", "kK top-k", "s speculation", "r restart", "u roll back")
        assert all(name in line(app) for name in names)


async def test_the_way_out_of_a_dialog_is_never_left_out(make_app: MakeApp) -> None:
    # A host of its own has more keys in its plan than this machine, and than there is room for.
    app = make_app(RecordedLink(replace(state(), host="gpu-a", embedded=False)))
    async with running(app, size=SMALL) as pilot:
        await pilot.press("b", "a")
        await until(lambda: isinstance(app.screen, PlanScreen) and app.screen.has_parts, "the plan")
        await pilot.press("m")
        await until(lambda: "roll back on failure" in line(app), "the keys of a restart")
        assert "⏎ apply" in line(app)
        assert "commit-confirm" not in line(app), "there is no room for all"
        assert line(app).rstrip().endswith("esc close")
