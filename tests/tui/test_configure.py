"""Putting a change together and seeing what it would do; profiles."""

from __future__ import annotations

import pytest
from textual.widgets import Static

from dflash_console.evidence.secrets import MASK
from dflash_console.tui.screens.dialog import ScrollText
from dflash_console.tui.screens.profiles import ProfilesScreen
from dflash_console.tui.widgets.field import LeavingInput
from dflash_console.tui.widgets.key_line import KeyLine
from dflash_console.tui.widgets.knob_table import KnobTable

from .conftest import MakeApp
from .driving import change, notices, running, text_of, until
from .support import RecordedLink, state


async def test_keys_put_a_change_together_on_the_dashboard(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        await pilot.press("b", "b", "k", "w", "s", "W")
        assert app.model.change.values == {
            "tree_budget": 16,
            "tree_topk": 6,
            "draft_window": 512,
            "speculation": False,
            "layers_window": "off",
        }
        assert "tree budget 8 → 16" in change(app)
        await pilot.press("B", "K", "right_square_bracket", "s", "W")
        assert app.model.change.values == {"tree_budget": 12, "draft_window": 1024}


async def test_the_layers_window_goes_back_as_trained_when_it_is_off_now(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state(layers_window=None)))
    async with running(app) as pilot:
        await pilot.press("W")
        assert app.model.change.values == {"layers_window": "config"}


async def test_escape_discards_the_change(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        await pilot.press("b", "escape")
        assert change(app) == ""
        assert not app.model.change


async def test_an_edit_that_has_come_true_is_no_edit_any_more(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("b", "k")
        link.push(state(speculative_ddtree_budget=12))
        await until(lambda: app.model.change.values == {"tree_topk": 6}, "the budget's edit to end")


async def test_every_setting_stands_with_its_value_and_origin(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        await pilot.press("2")
        rows = app.query_one(KnobTable).text.split("\n")
        budget = next(row for row in rows if "Tree budget" in row)
        assert "8" in budget
        assert "engine" in budget
        assert "trained with 512" in next(row for row in rows if "Compact draft cache" in row)
        assert "the engine's own" in next(row for row in rows if "Drafter  " in row)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_scroll_bar_that_comes_with_the_settings_wraps_none_of_them(make_app: MakeApp, size: tuple[int, int]) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app, size=size) as pilot:
        await pilot.press("2")
        await pilot.pause()
        table = app.query_one(KnobTable)
        assert table.query_one(Static).region.height == len(table.text.split("\n"))


async def test_while_a_value_is_typed_the_last_line_names_no_key_that_would_be_typed(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app, size=(80, 24)) as pilot:
        await pilot.press("2", "enter")
        await until(lambda: app.query_one("#knob-input").has_focus, "the field")
        await pilot.pause()
        assert str(app.query_one(KeyLine).render()).split() == ["⏎", "take", "esc", "leave", "the", "field"]


async def test_edits_are_marked_now_or_restart(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        await pilot.press("2", "b", "W")
        rows = app.query_one(KnobTable).text.split("\n")
        assert "now, without a restart" in next(row for row in rows if "Tree budget" in row)
        assert next(row for row in rows if "Drafter layers'" in row).rstrip().endswith("restart")


async def test_the_preview_shows_diff_command_expectations_and_findings(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("2", "b", "W")
        await until(lambda: "layers-window" in text_of(app, "#written"), "a diff")
        written = text_of(app, "#written")
        assert '"--speculative-draft-layers-window"' in written
        assert "--speculative-ddtree-budget 12" in written
        assert "13 rows" in text_of(app, "#expect")
        assert "3 s" in text_of(app, "#expect")
        assert text_of(app, "#findings")


async def test_enter_types_a_value_and_a_bad_one_is_explained(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        await pilot.press("2", "down", "down", "down", "down", "enter")
        field = app.query_one("#knob-input", LeavingInput)
        assert field.has_focus
        field.value = "0"
        await pilot.press("enter")
        assert "at least 1" in notices(app)
        assert field.display
        field.value = "24"
        await pilot.press("enter")
        assert app.model.change.values == {"tree_budget": 24}
        assert not field.display


async def test_the_tree_budget_shows_what_a_verify_costs_where_the_engine_measured_it(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("2", "down", "down", "down", "down")
        assert "measured" not in text_of(app, "#findings")
        link.push(state(verify_curve=[[1, 20.0], [9, 25.5], [65, 100.0]], avg_tree_nodes=8.9))
        await until(lambda: "measured" in text_of(app, "#findings"), "the measured curve")
        shown = text_of(app, "#findings").split("\n")
        assert "trees so far: 8.9 nodes on average" in shown[-4]
        assert [line.split() for line in shown[-3:-1]] == [["rows", "1", "9", "65"], ["ms", "20.0", "25.5", "100.0"]]
        await pilot.press("down")
        assert "measured" not in text_of(app, "#findings")


async def test_what_is_typed_first_takes_the_old_values_place(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        await pilot.press("2", "down", "down", "down", "down", "enter", *"auto", "enter")
        assert app.model.change.values == {"tree_budget": "auto"}


async def test_a_small_terminal_explains_the_whole_setting_until_something_is_edited(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app, size=(80, 24)) as pilot:
        await pilot.press("2", "down", "down", "down", "down")
        explained = app.query_one("#findings", ScrollText)
        await until(lambda: "--speculative-ddtree-budget" in explained.text, "the setting's words")
        await pilot.pause()
        assert (explained.border_title, explained.max_scroll_y) == ("What it is", 0)
        assert not app.query_one("#configure-right").display
        await pilot.press("plus")
        await until(lambda: app.query_one("#configure-right").display, "what would be written")
        assert explained.border_title == "Before you apply"
        await pilot.press("delete")
        await until(lambda: not app.query_one("#configure-right").display, "the words again")


@pytest.mark.parametrize("rows_down", [4, 6, 12])
async def test_the_row_whose_value_is_typed_stays_in_sight_in_a_small_terminal(make_app: MakeApp, rows_down: int) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app, size=(80, 24)) as pilot:
        await pilot.press("2", *["down"] * rows_down)
        table = app.query_one(KnobTable)
        line = next(number for number, row in enumerate(table.text.split("\n")) if row.startswith("▸"))
        height = table.scrollable_content_region.height
        await pilot.press("enter")
        await until(lambda: table.scrollable_content_region.height < height, "less room")
        await until(lambda: table.scroll_y <= line < table.scroll_y + table.scrollable_content_region.height, "the row")


async def test_printable_keys_type_in_a_field_and_escape_leaves_it(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        await pilot.press("2", "F", "b", "a", "q")
        assert app.query_one("#knob-input", LeavingInput).value == "--baq"
        assert not app.model.change
        await pilot.press("escape")
        assert app.query_one(KnobTable).has_focus


async def test_any_flag_can_be_set_by_its_name(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        await pilot.press("2", "F")
        app.query_one("#knob-input", LeavingInput).value = "--log-level warning"
        await pilot.press("enter")
        assert app.model.change.values == {"flag:--log-level": "warning"}
        assert "--log-level" in app.query_one(KnobTable).text


@pytest.mark.parametrize("typed", ["log-level=warning", "--log-level=warning", "--log-level warning"])
async def test_a_flag_may_be_typed_with_its_dashes_or_without(make_app: MakeApp, typed: str) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        await pilot.press("2", "F")
        field = app.query_one("#knob-input", LeavingInput)
        field.insert_text_at_cursor(typed)
        await pilot.press("enter")
        assert app.model.change.values == {"flag:--log-level": "warning"}


async def test_delete_takes_one_edit_back(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        await pilot.press("2", "b", "k", "delete")
        assert app.model.change.values == {"tree_budget": 12}


async def test_profiles_are_saved_compared_and_loaded(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("2", "b", "P", *"wide", "enter")
        await until(lambda: "wide" in link.saved, "the profile")
        assert link.saved["wide"]["tree_budget"] == 12
        await pilot.press("escape")
        await until(lambda: not app.model.change, "no change")
        await pilot.press("L")
        await until(lambda: isinstance(app.screen, ProfilesScreen), "the profiles")
        assert "8 → 12" in text_of(app, "#names")
        await pilot.press("enter")
        await until(lambda: app.model.change.values == {"tree_budget": 12}, "the profile's settings in the change")


async def test_a_secret_that_is_typed_is_neither_shown_nor_kept_in_a_profile(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("2", "b", "F", *"api-key topsecret", "enter")
        await until(lambda: app.model.change.values.get("flag:--api-key") == "topsecret", "the edit")
        await until(lambda: "--api-key" in text_of(app, "#written"), "the preview")
        assert f"--api-key unknown → {MASK}" in change(app)
        assert "topsecret" not in app.export_screenshot()
        await pilot.press("P", *"wide", "enter")
        await until(lambda: "wide" in link.saved, "the profile")
        assert link.saved["wide"]["tree_budget"] == 12
        assert "flag:--api-key" not in link.saved["wide"]
        assert "a secret is not written" in notices(app)
        link.saved["keyed"] = {"flag:--api-key": "topsecret"}
        await pilot.press("L")
        await until(lambda: isinstance(app.screen, ProfilesScreen), "the profiles")
        await pilot.press("down")
        assert MASK in text_of(app, "#names")
        assert "topsecret" not in app.export_screenshot()
