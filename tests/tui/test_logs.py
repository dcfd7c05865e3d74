"""The log screen: following that stops, searching, folding, copying."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from textual.pilot import Pilot

from dflash_console.evidence.journal import LogLine
from dflash_console.tui.app import ConsoleApp
from dflash_console.tui.clock import Clock
from dflash_console.tui.link import LinkError
from dflash_console.tui.screens.logs import RETRY_S
from dflash_console.tui.screens.tree import TreeScreen
from dflash_console.tui.tree import read_pictures
from dflash_console.tui.widgets.field import LeavingInput
from dflash_console.tui.widgets.log_view import LogView

from .conftest import MakeApp
from .driving import notices, running, until
from .recorded import ROUND, TRACEBACK
from .support import NOW, START_LINES, T0, RecordedLink, lines, state

MANY = [f"[2026-11-29 16:10:00] step {number}" for number in range(200)]


def link_with(*texts: str) -> RecordedLink:
    link = RecordedLink(state())
    link.log = list(lines([*START_LINES, *texts]))
    return link


async def open_log(app: ConsoleApp, pilot: Pilot[None], rows: int) -> LogView:
    """The log screen with the stored lines in it."""
    await pilot.press("4")
    view = app.query_one(LogView)
    await until(lambda: view.rows == rows, f"{rows} stored lines")
    return view


async def test_following_stays_at_the_newest_line(make_app: MakeApp) -> None:
    link = link_with(*MANY)
    app = make_app(link)
    async with running(app, (100, 30)) as pilot:
        view = await open_log(app, pilot, 208)
        link.log_batches.put_nowait(lines(["one more"], first=300))
        await until(lambda: view.rows == 209, "the new line")
        await pilot.pause()
        assert view.scroll_y == view.max_scroll_y
        assert view.cursor_text() == "one more"


class UnreadableLink(RecordedLink):
    """A host whose log cannot be read for a while, as while the link to it is down."""

    failing = True
    tries = 0

    async def follow(self, *, this_start: bool) -> AsyncIterator[tuple[LogLine, ...]]:
        self.tries += 1
        if self.failing:
            raise LinkError("the link is down")
        async for batch in super().follow(this_start=this_start):
            yield batch


async def test_a_log_that_could_not_be_read_is_read_when_the_host_answers_again_and_told_once() -> None:
    link = UnreadableLink(state())
    link.log = list(lines(START_LINES))
    now = NOW

    async def open_link() -> RecordedLink:
        return link

    async def snapshot(revision: int) -> None:
        newest = state(at=now, revision=revision)
        link.push(newest)
        await until(lambda: app.model.state is newest, "the snapshot")

    app = ConsoleApp(open_link, clock=Clock(wall=lambda: T0, monotonic=lambda: now))
    async with running(app, (100, 30)) as pilot:
        await pilot.press("4")
        await until(lambda: notices(app).count("the link is down") == 1, "why there is no log")
        await snapshot(2)
        assert link.tries == 1, "not at every snapshot"
        now += RETRY_S
        await snapshot(3)
        await until(lambda: link.tries == 2, "another try")
        await pilot.pause()
        now += RETRY_S
        link.failing = False
        await snapshot(4)
        await until(lambda: app.query_one(LogView).rows == len(START_LINES), "the log")
        assert notices(app).count("the link is down") == 1


async def test_scrolling_up_stops_following_for_good_and_the_view_stands_still(make_app: MakeApp) -> None:
    link = link_with(*MANY)
    app = make_app(link)
    async with running(app, (100, 30)) as pilot:
        view = await open_log(app, pilot, 208)
        await pilot.press("pageup")
        assert not view.follow
        top = view.row_text(round(view.scroll_y))
        for number in range(5):
            link.log_batches.put_nowait(lines([f"new {number}"], first=300 + number))
        await until(lambda: view.rows == 213, "the new lines")
        await pilot.pause()
        assert view.row_text(round(view.scroll_y)) == top
        await pilot.press("f")
        await until(lambda: view.follow and view.scroll_y == view.max_scroll_y, "the newest line in view")


async def test_the_view_stands_still_when_old_lines_are_forgotten(make_app: MakeApp) -> None:
    link = link_with(*MANY)
    app = make_app(link)
    async with running(app, (100, 30)) as pilot:
        view = await open_log(app, pilot, 208)
        view.book._limit = 208
        await pilot.press("pageup")
        top = view.row_text(round(view.scroll_y))
        link.log_batches.put_nowait(lines([f"new {number}" for number in range(20)], first=300))
        await until(lambda: view.book.dropped == 20, "the oldest lines to go")
        await pilot.pause()
        assert view.row_text(round(view.scroll_y)) == top


async def test_the_mouse_wheel_stops_following_too(make_app: MakeApp) -> None:
    app = make_app(link_with(*MANY))
    async with running(app, (100, 30)) as pilot:
        view = await open_log(app, pilot, 208)
        view.scroll_relative(y=-3, animate=False)
        await pilot.pause()
        assert not view.follow
        assert "standing still" in str(view.border_subtitle)


async def test_c_jumps_to_the_confirmation_line(make_app: MakeApp) -> None:
    app = make_app(link_with(*MANY))
    async with running(app, (100, 30)) as pilot:
        view = await open_log(app, pilot, 208)
        await pilot.press("c")
        assert "Initialized DDTREE draft runner" in view.cursor_text()
        assert not view.follow


async def test_a_search_goes_from_match_to_match_and_a_broken_one_is_explained(make_app: MakeApp) -> None:
    app = make_app(link_with(*MANY))
    async with running(app, (100, 30)) as pilot:
        view = await open_log(app, pilot, 208)
        await pilot.press("slash", *"step 1[0-1]$", "enter")
        assert view.cursor_text() == "step 11"
        await pilot.press("N")
        assert view.cursor_text() == "step 10"
        await pilot.press("n")
        assert view.cursor_text() == "step 11"
        await pilot.press("slash")
        app.query_one("#log-search", LeavingInput).value = "("
        await pilot.press("enter")
        assert "no regular expression" in notices(app)


async def test_levels_filter_and_come_round(make_app: MakeApp) -> None:
    access = '[2026-11-29 16:00:05] INFO:     127.0.0.1:4 - "GET /metrics HTTP/1.1" 200 OK'
    app = make_app(link_with(access, "[2026-11-29 16:00:09] ERROR: cannot allocate"))
    async with running(app) as pilot:
        view = await open_log(app, pilot, 9)
        await pilot.press("l", "l", "l")
        assert view.rows == 1
        await pilot.press("l")
        assert view.rows == 10


async def test_r_walks_the_ranks_that_the_log_names(make_app: MakeApp) -> None:
    app = make_app(link_with("[2026-11-29 16:00:09 TP0] from zero", "[2026-11-29 16:00:09 TP3] from three", "[/] of no rank"))
    async with running(app) as pilot:
        view = await open_log(app, pilot, 11)
        await pilot.press("R")
        assert "from three" not in view.lines.plain()
        assert "from zero" in view.lines.plain()
        assert "of no rank" in view.lines.plain()
        assert "rank 0 alone" in str(view.border_subtitle)
        await pilot.press("R", "R")
        assert view.rows == 11


async def test_a_log_that_names_no_rank_says_so(make_app: MakeApp) -> None:
    app = make_app(link_with())
    async with running(app) as pilot:
        await open_log(app, pilot, 8)
        await pilot.press("R")
        assert "names no rank" in notices(app)


async def test_w_wraps_long_lines_and_the_search_finds_the_row(make_app: MakeApp) -> None:
    app = make_app(link_with("x" * 300 + " needle"))
    async with running(app, (100, 40)) as pilot:
        view = await open_log(app, pilot, 9)
        await pilot.press("w")
        assert view.rows > 12
        assert view.row_text(view.rows - 1).endswith("needle")
        assert view.virtual_size.width <= view.size.width
        await pilot.press("home", "slash", *"needle", "enter")
        assert view.cursor is not None
        assert "needle" in view.row_text(view.lines.place(view.cursor))
        await pilot.press("w")
        assert view.rows == 9
        assert view.cursor_text().endswith("needle")


async def test_enter_opens_a_traceback_and_closes_it(make_app: MakeApp) -> None:
    app = make_app(link_with(*TRACEBACK[:4]))
    async with running(app) as pilot:
        view = await open_log(app, pilot, 9)
        assert "ValueError: no room" in view.row_text(8)
        await pilot.press("enter")
        assert view.rows == 12
        await pilot.press("enter")
        assert view.rows == 9


async def test_y_copies_the_line_to_the_terminal_and_to_a_file(make_app: MakeApp, tmp_path: Path) -> None:
    app = make_app(link_with("the last line"))
    async with running(app) as pilot:
        await open_log(app, pilot, 9)
        await pilot.press("y")
        assert app.clipboard == "the last line"
        (file,) = (tmp_path / "exports").iterdir()
        assert file.read_text() == "the last line\n"
        assert file.name in notices(app)


async def test_s_saves_what_is_shown(make_app: MakeApp, tmp_path: Path) -> None:
    app = make_app(link_with())
    async with running(app) as pilot:
        await open_log(app, pilot, 8)
        await pilot.press("S")
        (file,) = (tmp_path / "exports").iterdir()
        assert "The server is fired up" in file.read_text()


async def test_a_new_start_is_read_from_its_beginning(make_app: MakeApp) -> None:
    link = link_with("of the first start")
    app = make_app(link)
    async with running(app) as pilot:
        view = await open_log(app, pilot, 9)
        link.log = list(lines(["of the second start"], invocation="bb" * 16))
        link.push(state(invocation="bb" * 16))
        await until(lambda: view.rows == 1 and view.row_text(0) == "of the second start", "the second start alone")


async def test_brackets_in_the_log_are_text(make_app: MakeApp) -> None:
    app = make_app(link_with("[/] [red]x[/red] [@click=app.quit]y[/]"))
    async with running(app) as pilot:
        view = await open_log(app, pilot, 9)
        assert view.row_text(8) == "[/] [red]x[/red] [@click=app.quit]y[/]"


async def test_the_tree_view_opens_and_walks(make_app: MakeApp) -> None:
    link = link_with()
    link.pictures = read_pictures([ROUND, {**ROUND, "round": 8}])
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("4", "T")
        await until(lambda: isinstance(app.screen, TreeScreen), "the tree")
        assert "verify 8" in app.screen.query_one("#tree").text  # type: ignore[attr-defined]
        await pilot.press("left")
        assert "verify 7" in app.screen.query_one("#tree").text  # type: ignore[attr-defined]
