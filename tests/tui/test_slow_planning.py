"""A plan that took long to make opens unexpectedly: what was typed meanwhile is no answer to it."""

from __future__ import annotations

from textual.pilot import Pilot

from dflash_console.plan import Mode
from dflash_console.tui.app import ConsoleApp, ConsoleSettings
from dflash_console.tui.clock import Clock
from dflash_console.tui.screens.apply import ApplyScreen
from dflash_console.tui.screens.plan import PlanScreen
from dflash_console.tui.screens.unasked import NOTICED_S
from dflash_console.tui.widgets.key_line import KeyLine

from .driving import running, text_of, until
from .resting import Rests, rests
from .support import NOW, T0, RecordedLink, state, way_back

__all__ = ["rests"]


class SlowLink(RecordedLink):
    """A host that is far away: each plan takes ``takes`` seconds of the clock that the console looks at."""

    def __init__(self, takes: float) -> None:
        super().__init__(state())
        self.takes = takes
        self.now = NOW
        self.earlier = way_back(at=16)

    async def while_planning(self) -> None:
        await self.hold.wait()
        self.now += self.takes


def console(link: SlowLink) -> ConsoleApp:
    async def open_link() -> RecordedLink:
        return link

    return ConsoleApp(open_link, ConsoleSettings(), clock=Clock(wall=lambda: T0, monotonic=lambda: link.now))


async def opened(pilot: Pilot[None], *keys: str) -> PlanScreen:
    """The plan that these keys ask for."""
    await pilot.press(*keys)
    await until(lambda: isinstance(pilot.app.screen, PlanScreen) and pilot.app.screen.has_parts, "the plan")
    screen = pilot.app.screen
    assert isinstance(screen, PlanScreen)
    return screen


async def test_keys_that_were_typed_while_it_was_made_apply_nothing_until_the_keyboard_rests(rests: Rests) -> None:
    link = SlowLink(2 * NOTICED_S)
    app = console(link)
    async with running(app) as pilot:
        screen = await opened(pilot, "b", "a")
        await pilot.press("y", "m", "enter")
        assert app.screen is screen
        assert (link.applied, len(link.asked)) == ([], 1)
        assert "apply" not in str(screen.query_one(KeyLine).render())
        rests.come()
        await until(lambda: "apply" in str(screen.query_one(KeyLine).render()), "the keys, once they do something")
        await pilot.press("enter")
        await until(lambda: bool(link.applied), "the apply")


async def test_escape_closes_it_at_once(rests: Rests) -> None:
    app = console(SlowLink(2 * NOTICED_S))
    async with running(app) as pilot:
        screen = await opened(pilot, "b", "a")
        assert not screen.takes_answers
        await pilot.press("escape")
        assert app.screen is not screen


async def test_a_plan_that_was_there_at_once_takes_the_next_key() -> None:
    link = SlowLink(NOTICED_S / 2)
    app = console(link)
    async with running(app) as pilot:
        await opened(pilot, "b", "a")
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, ApplyScreen), "the stages")


async def test_a_slow_plan_of_a_roll_back_waits_too(rests: Rests) -> None:
    link = SlowLink(2 * NOTICED_S)
    app = console(link)
    async with running(app) as pilot:
        screen = await opened(pilot, "u")
        await pilot.press("enter")
        assert app.screen is screen
        assert link.rolled_back == []


async def test_while_a_plan_is_made_anew_the_one_before_is_not_applied() -> None:
    link = SlowLink(NOTICED_S / 2)
    app = console(link)
    async with running(app) as pilot:
        await opened(pilot, "b", "a")
        link.hold.clear()
        await pilot.press("m", "enter")
        await pilot.pause()
        assert link.applied == []
        link.hold.set()
        await until(lambda: "Effective command" in text_of(app, "#plan"), "the plan with a restart")
        await pilot.press("enter")
        await until(lambda: bool(link.applied), "the apply")
        assert link.applied[0][0].mode is Mode.RESTART


async def test_a_plan_that_was_long_made_anew_waits_for_a_rest(rests: Rests) -> None:
    link = SlowLink(NOTICED_S / 2)
    app = console(link)
    async with running(app) as pilot:
        screen = await opened(pilot, "b", "a")
        link.takes = 2 * NOTICED_S
        await pilot.press("m")
        await until(lambda: "Effective command" in text_of(app, "#plan"), "the plan with a restart")
        await pilot.press("enter")
        assert app.screen is screen
        assert link.applied == []
        rests.come()
        await until(lambda: screen.takes_answers, "a rest")
