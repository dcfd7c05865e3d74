"""Prompts: from the dock under the plots and from the playground."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, Markdown

from dflash_console.load.request import Endpoint
from dflash_console.tui.app import ConsoleApp
from dflash_console.tui.prompt_runner import EXAMPLE
from dflash_console.tui.screens.compare import CompareScreen
from dflash_console.tui.screens.dialog import ScrollText
from dflash_console.tui.screens.suites import SuiteScreen
from dflash_console.tui.widgets.answer_view import AnswerView
from dflash_console.tui.widgets.histogram import HistogramPanel
from dflash_console.tui.widgets.prompt_dock import PromptDock
from dflash_console.tui.widgets.prompt_editor import PromptEditor
from dflash_console.tui.widgets.toggle import Toggle

from .conftest import MakeApp
from .driving import notices, running, until
from .support import RecordedLink, state


async def first_answer(app: ConsoleApp, pilot: Pilot[None]) -> AnswerView:
    """The playground with the example's answer in it."""
    await pilot.press("5", "enter")
    view = app.query_one(AnswerView)
    await until(lambda: "4 verifies" in str(view.border_title), "an answer")
    return view


async def test_the_dock_sends_what_is_typed_and_shows_figures(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("p", *"a b", "enter")
        dock = app.query_one(PromptDock)
        await until(lambda: "commit 3.00" in dock.text, "the answer's figures")
        assert link.sent[0][0].text == "a b"
        assert "two sorted lists." in dock.text


@pytest.mark.parametrize(("columns", "shown"), [(80, False), (200, True)])
async def test_the_dock_leaves_out_a_text_that_has_no_room(make_app: MakeApp, columns: int, shown: bool) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app, size=(columns, 40)) as pilot:
        await pilot.press("p", "enter")
        dock = app.query_one(PromptDock)
        await until(lambda: "verifies" in dock.text, "the answer's figures")
        line = next(row for row in dock.text.split("\n") if "verifies" in row)
        assert line.endswith("two sorted lists.") == shown
        assert "…" not in line


async def test_the_dock_says_when_nothing_comes(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dflash_console.tui.prompt_runner.SILENCE_S", 1)
    link = RecordedLink(state())
    link.answer = ()
    link.hold.clear()
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("p", "enter")
        dock = app.query_one(PromptDock)
        # A busy machine may leave seconds out.
        silence = re.compile(r"nothing has come yet for ([2-9]|\d\d+) s")
        await until(lambda: silence.search(dock.text) is not None, "a word about the silence")
        link.hold.set()
        await until(lambda: "nothing" not in dock.text, "the answer's figures")


async def test_an_empty_dock_sends_the_example(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("p", "enter")
        await until(lambda: bool(link.sent), "a request")
        assert link.sent[0][0].text == EXAMPLE


async def test_copies_temperature_and_length_are_taken_from_their_fields(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("p")
        app.query_one("#dock-copies", Input).value = "3"
        app.query_one("#dock-temperature", Input).value = "0.7"
        app.query_one("#dock-max", Input).value = "64"
        await pilot.press("enter")
        await until(lambda: bool(link.sent), "the requests")
        assert [(request.temperature, request.max_tokens) for request in link.sent[0]] == [(0.7, 64)] * 3


async def test_a_field_that_cannot_be_read_sends_nothing_and_says_why(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("p")
        app.query_one("#dock-copies", Input).value = "many"
        await pilot.press("enter")
        assert "n (parallel copies)" in app.query_one(PromptDock).text
        assert link.sent == []


async def test_keys_work_on_the_plots_while_the_answer_streams(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    link.hold.clear()
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("p", "enter")
        await until(lambda: "tokens …" in app.query_one(PromptDock).text, "a streaming answer")
        await pilot.press("escape", "b")
        assert app.model.change.values == {"tree_budget": 12}
        await pilot.press("x")
        await until(lambda: "stopped" in app.query_one(PromptDock).text, "the end of the prompt")


async def test_up_recalls_what_was_sent_and_a_capital_p_closes_the_dock(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("p", *"one", "enter")
        await until(lambda: bool(link.sent), "a request")
        app.query_one("#dock-prompt", Input).value = ""
        await pilot.press("up")
        assert app.query_one("#dock-prompt", Input).value == "one"
        await pilot.press("escape", "P")
        assert not app.query_one(PromptDock).display


async def test_the_playground_shades_each_verify_and_shows_the_histogram(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        await pilot.press("5", "enter")
        view = app.query_one(AnswerView)
        await until(lambda: "4 verifies" in str(view.border_title), "the figures")
        assert view.text == "Here is a function that merges two sorted lists."
        grounds = [str(span.style) for span in view._text.spans]
        assert len(grounds) == 5
        assert grounds[0] != grounds[1]
        assert "50 %" in app.query_one("#answer-histogram", HistogramPanel).text


async def test_without_colours_verifies_are_told_apart_by_underlines(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        await pilot.press("5", "enter")
        view = app.query_one(AnswerView)
        await until(lambda: "4 verifies" in str(view.border_title), "the figures")
        assert "underline" in str(view.border_subtitle)
        assert any("underline" in str(span.style) for span in view._text.spans)


async def test_enter_sends_from_the_editor_and_printable_keys_type(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("5", "e")
        app.query_one(PromptEditor).load_text("")
        await pilot.press(*"qba", "f6", "x", "enter")
        await until(lambda: bool(link.sent), "a request")
        assert link.sent[0][0].text == "qba\nx"
        await pilot.press("escape")
        assert app.query_one(AnswerView).has_focus


async def test_what_is_typed_first_takes_the_examples_place_and_an_own_prompt_is_kept(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        await pilot.press("5", "e", *"abc")
        assert app.query_one(PromptEditor).text == "abc"
        await pilot.press("escape", "e", "end", "d")
        assert app.query_one(PromptEditor).text == "abcd"


async def test_arrows_walk_the_parallel_answers(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        await pilot.press("5")
        app.query_one("#play-copies", Input).value = "3"
        await pilot.press("enter")
        view = app.query_one(AnswerView)
        await until(lambda: "Answer 1 of 3" in str(view.border_title), "the first of three")
        await pilot.press("right")
        assert "Answer 2 of 3" in str(view.border_title)
        await pilot.press("left", "left")
        assert "Answer 3 of 3" in str(view.border_title)


async def test_comparing_with_plain_sends_the_same_prompt_without_speculation(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    app = make_app(link)
    async with running(app) as pilot:
        view = await first_answer(app, pilot)
        await pilot.press("c")
        await until(lambda: "same output ✓" in str(view.border_subtitle), "the comparison")
        assert dict(link.sent[1][0].custom_params) == {"speculative": False}
        assert dict(link.sent[0][0].custom_params) == {"record_rounds": True}
        assert link.sent[1][0].text == link.sent[0][0].text


async def test_plain_is_asked_what_the_answer_was_asked_and_not_what_the_editor_holds_now(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    app = make_app(link)
    async with running(app) as pilot:
        view = await first_answer(app, pilot)
        app.query_one(PromptEditor).load_text("something else")
        await pilot.press("c")
        await until(lambda: "same output ✓" in str(view.border_subtitle), "the comparison")
        assert link.sent[1][0].text == link.sent[0][0].text


async def test_a_comparison_stays_with_its_answer(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        await pilot.press("5")
        app.query_one("#play-copies", Input).value = "2"
        await pilot.press("enter")
        view = app.query_one(AnswerView)
        await until(lambda: "4 verifies" in str(view.border_title), "the answers")
        await pilot.press("c")
        await until(lambda: "same output ✓" in str(view.border_subtitle), "the comparison")
        await pilot.press("right")
        assert "same output" not in str(view.border_subtitle)
        await pilot.press("left")
        assert "same output ✓" in str(view.border_subtitle)


async def test_an_answer_is_compared_in_full_with_plain_decoding_and_with_earlier_ones(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    app = make_app(link)
    async with running(app) as pilot:
        view = await first_answer(app, pilot)
        link.answer = ("Here is", " another one.")
        await pilot.press("enter")
        await until(lambda: len(link.sent) == 2 and "another one" in view.text, "a second answer")
        await until(lambda: "4 verifies" in str(view.border_title), "its end")
        assert "kept to compare with" in app.query_one("#answer-list", ScrollText).text
        await pilot.press("c")
        await until(lambda: "same output ✓" in str(view.border_subtitle), "the comparison with plain decoding")
        await pilot.press("C")
        await until(lambda: isinstance(app.screen, CompareScreen), "the comparison")
        screen = app.screen
        assert isinstance(screen, CompareScreen)
        assert screen.text.startswith("plain: same output ✓")
        await pilot.press("right")
        assert "parts at character 10 · " in screen.text
        assert "bf16: near-ties may fall either way" in screen.text
        assert "✗" not in screen.text
        assert "two sorted lists." in screen.text
        assert "nearly equal logits" in screen.text
        await pilot.press("escape")
        await until(lambda: app.screen is not screen, "the playground")


async def test_a_second_question_is_not_called_another_output(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    app = make_app(link)
    async with running(app) as pilot:
        view = await first_answer(app, pilot)
        app.query_one(PromptEditor).load_text("something else")
        await pilot.press("enter")
        await until(lambda: len(link.sent) == 2 and "4 verifies" in str(view.border_title), "a second answer")
        await pilot.press("C")
        await until(lambda: isinstance(app.screen, CompareScreen), "the comparison")
        assert "asked otherwise: another prompt" in app.screen.text  # type: ignore[attr-defined]


async def test_a_raw_text_goes_to_the_endpoint_without_a_template(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("5", "R", "enter")
        await until(lambda: len(link.sent) == 1, "a request")
        assert link.sent[0][0].endpoint is Endpoint.GENERATE
        app.query_one(Toggle).focus()
        await pilot.press("space", "enter")
        await until(lambda: len(link.sent) == 2, "a second request")
        assert link.sent[1][0].endpoint is Endpoint.CHAT


async def test_markdown_is_shown_only_of_a_finished_answer(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    link.hold.clear()
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("5", "enter")
        await until(lambda: "tokens …" in str(app.query_one(AnswerView).border_title), "a streaming answer")
        await pilot.press("m")
        assert not app.query(Markdown)
        link.hold.set()
        await until(lambda: "4 verifies" in str(app.query_one(AnswerView).border_title), "the end")
        await pilot.press("m")
        await until(lambda: bool(app.query(Markdown)), "the Markdown view")
        await pilot.press("m")
        await until(lambda: not app.query(Markdown), "the plain text")


async def test_clicking_into_a_streaming_answer_does_no_harm(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    link.hold.clear()
    link.answer = tuple(f"word{number} " for number in range(300))
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("5", "enter")
        for number in range(40):
            await pilot.click(AnswerView, offset=(5 + number % 30, 2 + number % 8))
        link.hold.set()
        await until(lambda: "4 verifies" in str(app.query_one(AnswerView).border_title), "the end")


async def test_markup_in_an_answer_is_text(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    link.answer = ("[bold]", "x[/bold] ", "[@click=app.quit]no[/]")
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("5", "enter")
        await until(lambda: "4 verifies" in str(app.query_one(AnswerView).border_title), "the answer")
        assert app.query_one(AnswerView).text == "[bold]x[/bold] [@click=app.quit]no[/]"


async def test_a_prompt_of_a_suite_is_taken_into_the_editor(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        await pilot.press("5", "o")
        await until(lambda: isinstance(app.screen, SuiteScreen), "the suites")
        await pilot.press("tab", "down", "right", "enter")
        await until(lambda: not isinstance(app.screen, SuiteScreen), "the playground")
        assert len(app.query_one(PromptEditor).text) > 1500


async def test_answers_are_copied_and_saved(make_app: MakeApp, tmp_path: Path) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        await pilot.press("5", "enter")
        await until(lambda: "4 verifies" in str(app.query_one(AnswerView).border_title), "an answer")
        await pilot.press("y", "S")
        assert app.clipboard.startswith("Here is a function")
        assert len(list((tmp_path / "exports").iterdir())) == 2
        assert "Saved" in notices(app)
