"""The truth table: six sources, a verdict in words, a key that mends."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.cells import cell_len

from dflash_console import drift
from dflash_console.drift import TruthTable, truth_table
from dflash_console.evidence.file_edits import FileEdit
from dflash_console.plan import Change, Mode, make_plan
from dflash_console.state import HostState, RunState
from dflash_console.tui.screens.dialog import ScrollText
from dflash_console.tui.screens.plan import PlanScreen
from dflash_console.tui.screens.truth import TruthPane
from dflash_console.tui.widgets.key_line import KeyLine
from dflash_console.tui.widgets.truth_view import TruthView, column_widths

from .conftest import MakeApp
from .driving import running, until
from .recorded import HOT
from .support import START_LINES, RecordedLink, state


async def test_every_source_has_a_column_and_every_setting_a_verdict(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        await pilot.press("3")
        shown = app.query_one(TruthView).text
        assert all(name in shown for name in ("trained", "unit file", "loaded", "process", "server", "log"))
        assert "✓ Tree budget" in shown
        assert app.query_one(TruthView).border_subtitle == "no drift"


async def test_the_table_is_judged_anew_when_a_source_says_something_else_and_only_then(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = 0

    def counting(state: HostState) -> TruthTable:
        nonlocal judged
        judged += 1
        return truth_table(state)

    monkeypatch.setattr(drift, "truth_table", counting)
    link = RecordedLink(state())
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("3")
        view = app.query_one(TruthView)
        before = judged
        access = 'INFO: 127.0.0.1:50000 - "GET /metrics HTTP/1.1" 200 OK'
        for number in range(5):
            # Every part is read anew, and says the same; the log goes on with lines that tell nothing.
            newest = state(texts=[*START_LINES, *[access] * number], revision=number + 2)
            link.push(newest)
            await until(lambda newest=newest: app.model.state is newest, "the snapshot")  # type: ignore[misc]
            await pilot.pause()
        assert judged == before
        link.push(state(texts=HOT, speculative_ddtree_budget=16, revision=9))
        await until(lambda: "hot change not written down" in view.text, "the new verdict")


async def test_the_row_under_the_cursor_says_where_each_value_was_read(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        await pilot.press("3", "down", "down", "down", "down")
        shown = app.query_one(TruthView).text
        assert "log line 6" in shown
        assert "service.toml" in shown


async def test_a_hot_change_is_drift_of_a_known_kind_and_a_writes_it_down(make_app: MakeApp) -> None:
    link = RecordedLink(state(texts=HOT, speculative_ddtree_budget=16))
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("3")
        assert "hot change not written down" in app.query_one(TruthView).text
        await pilot.press("a")
        await until(lambda: isinstance(app.screen, PlanScreen), "the plan")
        assert dict(link.asked[-1][0]) == {"tree_budget": 16}


async def test_writing_down_says_what_the_file_has_and_not_that_a_value_becomes_itself(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state(texts=HOT, speculative_ddtree_budget=16)))
    async with running(app) as pilot:
        await pilot.press("3", "a")
        await until(lambda: isinstance(app.screen, PlanScreen), "the plan")
        shown = app.screen.query_one("#plan", ScrollText).text
        assert "Tree budget: 16 in effect already; in the file 8 → 16" in shown
        assert "16 → 16" not in shown.replace("8 → 16", "")
        assert "in effect already\n" not in shown


async def test_rows_that_cannot_be_judged_are_counted_and_their_common_reason_is_said_once(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state(ready=False, texts=START_LINES[:3])))
    async with running(app) as pilot:
        await pilot.press("3")
        view = app.query_one(TruthView)
        assert "not known yet" in str(view.border_subtitle)
        assert "no drift" not in str(view.border_subtitle)
        reason = "    the confirmation line has not been seen in this start"
        assert [line.rstrip() for line in view.text.split("\n")].count(reason) == 1


LOG_DENIED = "the journal cannot be read: this user is in none of the groups adm and systemd-journal"
FILE_DENIED = "/etc/systemd/system/sglang-kimi-k26-ddtree.service: permission denied: this user may not read it"


@pytest.mark.parametrize(
    ("unread", "count", "why"),
    [
        (replace(state(), server=None, log=None, problems={"log": LOG_DENIED}), "not known: log unreadable", LOG_DENIED),
        (replace(state(), problems={"config": FILE_DENIED}), "not known: unit file unreadable", FILE_DENIED),
        (
            replace(state(run=RunState.STOPPED), problems={"config": FILE_DENIED}),
            "not known: unit file unreadable · the engine is not running",
            FILE_DENIED,
        ),
    ],
    ids=["log", "file", "stopped"],
)
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_what_could_not_be_read_is_not_only_not_known_yet(
    make_app: MakeApp, unread: HostState, count: str, why: str, size: tuple[int, int]
) -> None:
    app = make_app(RecordedLink(unread, read_only=True))
    async with running(app, size=size) as pilot:
        await pilot.press("3")
        view = app.query_one(TruthView)
        assert count in str(view.border_subtitle)
        assert cell_len(str(view.border_subtitle)) <= size[0] - 6, "nothing of it is cut off"
        assert "yet" not in str(view.border_subtitle)
        await pilot.pause()
        in_sight = view.text.split("\n")[: view.scrollable_content_region.height]
        assert why in " ".join(" ".join(in_sight).split()), "without scrolling"


async def test_a_source_that_can_no_longer_be_read_changes_the_table(make_app: MakeApp) -> None:
    link = RecordedLink(replace(state(), server=None, log=None))
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("3")
        view = app.query_one(TruthView)
        assert "not known yet" in str(view.border_subtitle)
        link.push(replace(state(revision=2), server=None, log=None, problems={"log": LOG_DENIED}))
        await until(lambda: "log unreadable" in str(view.border_subtitle), "what could not be read")


async def test_enter_on_a_row_does_what_its_key_does(make_app: MakeApp) -> None:
    link = RecordedLink(state(texts=HOT, speculative_ddtree_budget=16))
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("3", *["down"] * 4, "enter")
        await until(lambda: isinstance(app.screen, PlanScreen), "the plan")
        assert "16" in app.screen.query_one("#plan", ScrollText).text


async def test_the_table_is_judged_anew_when_a_source_was_read_anew(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("3")
        link.push(state(texts=HOT, speculative_ddtree_budget=16))
        await until(lambda: "hot change" in app.query_one(TruthView).text, "the new verdict")
        assert isinstance(app.pane, TruthPane)


def shadowed_state() -> HostState:
    """A unit that was edited after the console's drop-in was made from it."""
    found = state()
    assert found.config is not None
    words = "the unit was changed after zz-ddtree-console.conf was made from it, and the drop-in hides the change"
    return replace(found, config=replace(found.config, value=replace(found.config.value, shadowed=words)))


@pytest.mark.parametrize(("key", "released"), [("e", False), ("E", True), ("enter", False)])
async def test_a_hidden_change_of_the_unit_has_keys_that_carry_the_drop_in_over_or_remove_it(
    make_app: MakeApp, key: str, released: bool
) -> None:
    link = RecordedLink(shadowed_state())
    link.drop_in = make_plan(
        state(),
        Change({"tree_budget": 16}, Mode.RESTART),
        link.survey,
        target="x",
        render=lambda command: (FileEdit("x", "", "y"),),
    )
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("3")
        await until(lambda: "the drop-in hides the change" in app.query_one(TruthView).text, "the verdict")
        assert "e carries the drop-in over, E removes it" in " ".join(app.query_one(TruthView).text.split())
        row = next(index for index, row in enumerate(app.query_one(TruthView)._rows) if row.key == "e")
        app.query_one(TruthView).move(row)
        await pilot.press(key)
        await until(lambda: isinstance(app.screen, PlanScreen), "the plan")
        assert link.released is released
        assert "hot/restart" not in str(app.screen.query_one(KeyLine).render())
        await pilot.press("enter")
        await until(lambda: bool(link.applied), "the operation")


async def test_without_a_hidden_change_these_keys_do_nothing(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("3", "e", "E")
        await pilot.pause()
        assert link.released is None
        assert len(app.screen_stack) == 1


def rows_of(text: str) -> list[str]:
    """The table's lines of a row each, without their marks."""
    return [line[3:] for line in text.split("\n") if line[1:2] in ("✓", "!", "✗", "?")]


def started_with(*words: str) -> HostState:
    """A process with more on its command line than the unit file has."""
    found = state()
    assert found.process is not None
    process = replace(found.process, value=replace(found.process.value, argv=(*found.process.value.argv, *words)))
    return replace(found, process=process)


def reporting_drafter(path: str) -> HostState:
    """A server that reports this drafter, which no file or command line names."""
    found = state()
    assert found.server is not None
    info = replace(found.server.value, fields={**found.server.value.fields, "speculative_draft_model_path": path})
    return replace(found, server=replace(found.server, value=info))


async def test_in_eighty_columns_no_name_and_no_value_but_a_path_is_cut(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(reporting_drafter("/srv/models/smollm2-135m-dflash")))
    async with running(app, (80, 24)) as pilot:
        await pilot.press("3")
        view = app.query_one(TruthView)
        await until(lambda: "Drafter layers' window" in view.text, "the table")
        assert [name in view.text for name in ("Compact draft cache ", "└ in use ", "Top-k per position ")] == [True] * 3
        assert [row for row in rows_of(view.text) if "…" in row and not row.startswith("Drafter  ")] == []
        assert max(len(line) for line in view.text.split("\n")) <= 76


async def test_an_unset_window_reads_off_and_the_row_says_how_the_server_writes_it(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app, (80, 24)) as pilot:
        await pilot.press("3")
        view = app.query_one(TruthView)
        assert next(row for row in rows_of(view.text) if row.startswith("Compact draft cache")).split()[-2:] == ["off", "off"]
        assert "null" not in view.text
        await pilot.press("down")
        await until(lambda: "written as null" in " ".join(view.text.split()), "the server's own word")


async def test_what_a_column_cuts_stands_whole_beneath_its_row(make_app: MakeApp) -> None:
    path = "/srv/models/" + "x" * 40
    app = make_app(RecordedLink(reporting_drafter(path)))
    async with running(app, (80, 24)) as pilot:
        await pilot.press("3")
        view = app.query_one(TruthView)
        assert path in "".join(view.text.split())
        assert view.text.count("xxxxx…") == 0, "a path is cut at its beginning"


@pytest.mark.parametrize("size", [(80, 24), (100, 30), (120, 40)])
async def test_a_path_in_wide_characters_keeps_columns_and_indents(make_app: MakeApp, size: tuple[int, int]) -> None:
    app = make_app(RecordedLink(reporting_drafter("/srv/モデル/日本語のとても長い名前のフォルダー/" + "小さい" * 12)))
    async with running(app, size) as pilot:
        await pilot.press("3")
        view = app.query_one(TruthView)
        lines = view.text.split("\n")
        assert max(map(cell_len, lines)) <= view.scrollable_content_region.width
        assert [line for line in lines if "小さい" in line and line.startswith("    ")]
        assert not [line for line in lines if line[:1] not in (" ", "▸")]


async def test_a_flag_with_a_long_name_has_its_name_whole(make_app: MakeApp) -> None:
    flag = "--speculative-dflash-enable-something-long"
    app = make_app(RecordedLink(started_with(flag)))
    async with running(app, (80, 24)) as pilot:
        await pilot.press("3")
        await until(lambda: f"✗ {flag}" in app.query_one(TruthView).text, "the flag's row")


def test_paths_give_way_before_other_values_and_spare_cells_are_shared() -> None:
    columns = [["512, 3 of 4"], ["DDTREE", "/models/" + "x" * 30], ["–"], ["–"], ["off"], ["off"]]
    narrow = column_widths(columns, 46)
    assert sum(narrow) == 46
    assert narrow[0] == len("512, 3 of 4") + 1
    wide = column_widths(columns, 120)
    assert sum(wide) == 120
    assert min(wide[2:]) >= 10
    assert column_widths(columns, 10) == [8, 5, 7, 8, 7, 4]
