"""The dashboard: is the server the one I think it is, and how fast is it?"""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from dflash_console.evidence.metrics import Rates
from dflash_console.evidence.start_log import MAX_HOT_CHANGES
from dflash_console.history import Mark as HistoryMark
from dflash_console.history import MarkKind
from dflash_console.hosts.service import RunState
from dflash_console.state import HostState
from dflash_console.tui import messages
from dflash_console.tui.facts import DriftBadge, Tone, header_facts
from dflash_console.tui.figures import live_figures
from dflash_console.tui.link import LinkError, Past
from dflash_console.tui.live import past_marks
from dflash_console.tui.model import ConsoleModel
from dflash_console.tui.screens.dialog import ScrollText
from dflash_console.tui.screens.help import ExplainScreen, HelpScreen
from dflash_console.tui.widgets.connection_notice import ConnectionNotice
from dflash_console.tui.widgets.event_list import EventPanel
from dflash_console.tui.widgets.gpu_panel import GpuPanel
from dflash_console.tui.widgets.histogram import HistogramPanel
from dflash_console.tui.widgets.key_line import KeyLine
from dflash_console.tui.widgets.log_view import LogView
from dflash_console.tui.widgets.plot_panel import PlotPanel
from dflash_console.tui.widgets.requests_panel import RequestsPanel
from dflash_console.tui.widgets.tab_line import TabLine

from .conftest import MakeApp
from .driving import header, notices, running, until
from .support import BUSY, EIGHT_GPUS, IDLE, NOW, START_LINES, T0, RecordedLink, state, wavy_past


def styles_of(panel: PlotPanel) -> str:
    """All styles of the panel's text."""
    return " ".join(str(span.style) for line in panel._lines for span in line.spans)


async def test_the_header_names_host_unit_state_settings_and_verdict(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app):
        first, second = header(app).split("\n")
        assert "embedded ▸ ddtree-embedded ▸ ● running 2m 14s" in first
        assert first.rstrip().endswith("now")
        assert "DDTREE · budget 8 · top-k 4 · window off · compact off" in second
        assert "a small model on this CPU" in second
        assert second.rstrip().endswith("✓ confirmed")


async def test_what_arrives_when_the_screens_are_gone_is_dropped(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app):
        pass
    assert not app.screen_stack
    app.on_state_arrived(messages.StateArrived(state()))
    app.on_past_arrived(messages.PastArrived(wavy_past(NOW)))
    app.on_link_failed(messages.LinkFailed("the link is gone"))


async def test_a_hot_change_that_is_not_written_down_shows_in_the_header(make_app: MakeApp) -> None:
    texts = (
        *START_LINES,
        "[2026-11-29 16:01:00] Hot change applied. speculative_ddtree_budget: 8 -> 16 (from /set_internal_state)",
    )
    app = make_app(RecordedLink(state(texts=texts, speculative_ddtree_budget=16)))
    async with running(app):
        assert "budget 16" in header(app)
        assert "! 1 unwritten" in header(app)


async def test_a_loading_engine_says_how_far_it_is(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state(ready=False, texts=START_LINES[:6])))
    async with running(app):
        assert "◐ loading: draft runner" in header(app)


async def test_old_data_are_called_old(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state(at=NOW - 42.0)))
    async with running(app):
        assert header(app).split("\n")[0].rstrip().endswith("42 s ago")
    assert header_facts(state(at=NOW - 42.0), now=NOW, wall=T0, drift=DriftBadge()).age_tone is Tone.WARN
    assert header_facts(state(at=NOW - 2.0), now=NOW, wall=T0, drift=DriftBadge()).age_tone is Tone.GOOD


async def test_an_unknown_setting_is_a_question_mark_and_not_a_value(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state(speculative_ddtree_budget="many", texts=START_LINES[:1])))
    async with running(app):
        assert "budget ?" in header(app)


async def test_an_engine_of_which_nothing_is_known_yet_has_no_row_of_question_marks(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state(ready=False, texts=START_LINES[:1])))
    async with running(app):
        assert "?" not in header(app)


@pytest.mark.parametrize(
    ("run", "words"), [(RunState.STOPPED, "stopped: r starts it"), (RunState.FAILED, "failed: 4 shows its log")]
)
async def test_an_engine_that_is_down_says_so_in_place_of_its_figures(make_app: MakeApp, run: RunState, words: str) -> None:
    # Not the embedded engine, which the console would start by itself.
    app = make_app(RecordedLink(replace(state(run=run, rates=BUSY), embedded=False)))
    async with running(app):
        assert words in app.query_one("#decode", PlotPanel).text
        assert words in app.query_one("#commit", PlotPanel).text
        assert "61.4" not in app.query_one("#decode", PlotPanel).text
        assert "38 %" not in app.query_one(RequestsPanel).text


async def test_the_plots_say_that_the_engine_is_being_started_from_the_first_moment(make_app: MakeApp) -> None:
    link = RecordedLink(replace(state(run=RunState.STOPPED), embedded=False))
    link.hold.clear()
    app = make_app(link)
    async with running(app) as pilot:
        assert "stopped: r starts it" in app.query_one("#decode", PlotPanel).text
        await pilot.press("r", "escape")
        # No snapshot has come since.
        assert app.model.busy == "starting"
        assert "– starting …" in app.query_one("#decode", PlotPanel).text
        assert "– starting …" in app.query_one("#commit", PlotPanel).text
        assert "starting" in header(app)


async def test_without_a_past_the_plots_begin_with_one_minute(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app):
        await until(lambda: app.model.span == 60, "the shortest span")
        assert "span 1 min" in app.query_one(TabLine).render().plain  # type: ignore[union-attr]


async def test_no_gpu_panel_while_it_is_not_known_whether_there_are_gpus(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(replace(state(), gpus=None)))
    async with running(app):
        assert not app.query_one(GpuPanel).display


async def test_figures_stand_with_their_source_and_the_baseline(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state(), past=wavy_past(T0 + 134)))
    async with running(app):
        await until(lambda: "2.12×" in app.query_one("#decode", PlotPanel).text, "the ratio to plain decoding")
        decode = app.query_one("#decode", PlotPanel).text
        assert "61.4 tok/s" in decode
        assert "counters" in decode
        assert "gauge agrees within 1 %" in decode
        assert "restart" in decode
        assert "3.42" in app.query_one("#commit", PlotPanel).text


async def test_a_commit_length_from_before_is_called_last_known(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state(rates=IDLE)))
    async with running(app):
        assert "last known" in app.query_one("#commit", PlotPanel).text
        assert "idle" in app.query_one("#decode", PlotPanel).text


@pytest.mark.parametrize(
    ("accepted", "words"), [((), "last known"), ((1,), "last known, of 1 verify"), ((900, 134), "last known, of 1,034 verifies")]
)
def test_of_how_many_verifies_an_old_commit_length_is_stands_beside_it(accepted: tuple[int, ...], words: str) -> None:
    assert live_figures(state(rates=replace(IDLE, accept_histogram=accepted))).commit_note == words
    assert live_figures(state(rates=BUSY)).commit_note == ""


async def test_the_plots_move_when_a_new_sample_arrives(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    app = make_app(link)
    async with running(app):
        link.push(state(rates=replace(BUSY, decode_tok_s=99.9), revision=2))
        await until(lambda: "99.9 tok/s" in app.query_one("#decode", PlotPanel).text, "the new value")


def test_one_reading_is_sampled_once() -> None:
    model = ConsoleModel()
    assert model.take_state(state(), T0)
    assert not model.take_state(state(rates=Rates(decode_tok_s=1.0)), T0 + 1)
    assert model.take_state(state(revision=2), T0 + 2)
    assert len(model.decode) == 2


async def test_a_restart_and_a_hot_change_leave_marks(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    app = make_app(link)
    async with running(app):
        link.push(state(invocation="bb" * 16))
        await until(lambda: [mark.label for mark in app.model.marks] == ["restart"], "a mark of the restart")
        texts = (*START_LINES, "Hot change applied. speculative_ddtree_budget: 8 -> 16 (from /set_internal_state)")
        link.push(state(invocation="bb" * 16, texts=texts))
        await until(lambda: [mark.label for mark in app.model.marks] == ["restart", "budget 16"], "a mark of the change")


def test_a_start_of_an_engine_that_stood_still_is_no_restart() -> None:
    model = ConsoleModel()
    for at, run, invocation in (
        (0, RunState.STOPPED, "aa" * 16),
        (1, RunState.STARTING, "aa" * 16),
        (2, RunState.RUNNING, "bb" * 16),
        (3, RunState.STOPPING, "bb" * 16),
        (4, RunState.RUNNING, "cc" * 16),
    ):
        model.take_state(state(run=run, invocation=invocation), T0 + at)
    assert [(mark.at - T0, mark.label) for mark in model.marks] == [(2, "start"), (4, "restart")]


def test_of_the_starts_in_history_the_first_is_no_restart_and_one_seen_already_is_not_marked_twice() -> None:
    starts = [HistoryMark(T0 + at, MarkKind.RESTART, f"start {word * 8}") for at, word in ((-90, "1"), (-60, "2"), (-1.5, "b"))]
    assert [mark.label for mark in past_marks(starts)] == ["start", "restart", "restart"]
    model = ConsoleModel()
    model.take_state(state(), T0 - 2)
    model.take_state(state(invocation="bb" * 16), T0)
    model.take_past(Past(marks=past_marks(starts)))
    assert [mark.at - T0 for mark in model.marks] == [-90, -60, 0]


def test_a_hot_change_in_history_that_the_log_still_has_is_marked_once_and_in_short_words() -> None:
    changed = (*START_LINES, "Hot change applied. speculative_ddtree_budget: 8 -> auto (from /set_internal_state)")
    model = ConsoleModel()
    model.take_state(state(texts=changed), NOW)
    (seen,) = model.marks
    assert seen.label == "budget auto"
    model.take_past(Past(marks=past_marks([HistoryMark(seen.at, MarkKind.HOT, "speculative_ddtree_budget auto")])))
    assert model.marks == [seen]


@pytest.mark.parametrize(
    ("run", "busy", "words"),
    [
        (RunState.STOPPED, "", "the engine is stopped: r starts it"),
        (RunState.STOPPED, "starting", "starting …"),
        (RunState.FAILED, "restarting", "restarting …"),
        (RunState.STARTING, "starting", "the engine starts"),
    ],
)
def test_the_plots_offer_no_start_while_one_is_under_way(run: RunState, busy: str, words: str) -> None:
    figures = live_figures(state(run=run), busy)
    assert (figures.decode_note, figures.commit_note) == (words, words)


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (replace(state(ready=False), log=None), "asking the engine"),
        (replace(state(ready=False), log=None, problems={"server": "refused"}), "the engine loads"),
        (state(ready=False, texts=START_LINES[:3]), "the engine loads"),
        (state(ready=False), "asking the engine"),
        (replace(state(ready=False), problems={"server": "timed out"}), "the engine does not answer"),
    ],
)
def test_the_plots_call_no_running_engine_loading_before_that_is_known(seen: HostState, words: str) -> None:
    figures = live_figures(seen)
    assert (figures.decode_note, figures.commit_note) == (words, words)


def test_every_hot_change_leaves_a_mark_however_many_there_are() -> None:
    model = ConsoleModel()
    change = "Hot change applied. speculative_ddtree_budget: 8 -> {} (from /set_internal_state)"
    texts = [*START_LINES, *(change.format(budget) for budget in range(1, MAX_HOT_CHANGES + 1))]
    model.take_state(state(texts=texts), T0)
    model.take_state(state(texts=[*texts, change.format(777)]), T0 + 1)
    assert [mark.label for mark in model.marks].count("budget 777") == 1
    assert len(model.marks) == MAX_HOT_CHANGES + 1


async def test_a_baseline_measured_meanwhile_shows_after_the_next_start(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    app = make_app(link)
    async with running(app):
        assert app.model.baseline is None
        link.measure_baseline(30.7)
        link.push(state(invocation="bb" * 16))
        await until(lambda: app.model.baseline == 30.7, "the baseline")
        link.push(state(invocation="bb" * 16, revision=2))
        await until(lambda: "2.00×" in app.query_one("#decode", PlotPanel).text, "the ratio to it")


async def test_without_a_host_the_reason_is_said_and_no_key_pretends_to_work(make_app: MakeApp) -> None:
    app = make_app(RecordedLink())

    async def refuse() -> RecordedLink:
        raise LinkError("SSH hosts come with the next release")

    app.watching._open_link = refuse
    async with app.run_test(size=(120, 40)):
        await until(lambda: "SSH hosts come with the next release" in app.query_one(ConnectionNotice).text, "the reason")
        assert "budget" not in str(app.query_one(KeyLine).render())


async def test_panels_show_histogram_requests_and_events(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app):
        assert "20 %" in app.query_one(HistogramPanel).text
        requests = app.query_one(RequestsPanel).text
        assert "3 · 1" in requests
        assert "212 ms · 390 ms" in requests
        assert "4.30 MB" in requests
        events = app.query_one(EventPanel).text
        assert "✓ ready after 7 s" in events
        assert "window off" in events


async def test_a_rounds_time_and_its_parts_are_shown_where_the_engine_measures_them(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    app = make_app(link)
    async with running(app, (120, 40)):
        assert "round" not in app.query_one(RequestsPanel).text
        parts = {"append": 0.02, "draft": 0.18, "topk": 0.03, "verify": 0.77}
        link.push(state(rates=replace(BUSY, round_s=0.0281, round_shares=parts)))
        await until(lambda: "round" in app.query_one(RequestsPanel).text, "the round's time")
        lines = [" ".join(line.split()) for line in app.query_one(RequestsPanel).text.split("\n")]
        assert {"one round 28.1 ms", "verify · draft 77 % · 18 %", "the other parts 5 %"} <= set(lines)


async def test_the_gpu_panel_is_there_only_where_there_are_gpus(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    app = make_app(link)
    async with running(app, (200, 60)):
        assert not app.query_one(GpuPanel).display
        link.push(state(gpus=EIGHT_GPUS))
        await until(lambda: app.query_one(GpuPanel).display and "87.9 GiB" in app.query_one(GpuPanel).text, "eight GPUs")
        assert app.query_one(GpuPanel).text.count("W") >= 8


async def test_span_keys_walk_from_a_minute_to_a_day(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state(), past=wavy_past(T0 + 134)))
    async with running(app) as pilot:
        assert app.model.span == 900
        await pilot.press("minus", "minus", "minus", "minus")
        assert app.model.span == 60
        await pilot.press(*["plus"] * 9)
        assert app.model.span == 86_400


async def test_z_maximises_the_panel_in_focus_and_z_again_restores_it(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        await pilot.press("z")
        assert app.screen.maximized is app.query_one("#decode")
        await pilot.press("z")
        assert app.screen.maximized is None


async def test_f1_explains_the_panel_in_focus(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        app.query_one("#commit").focus()
        await pilot.press("f1")
        assert isinstance(app.screen, ExplainScreen)
        shown = app.screen.query_one("#explanation").text  # type: ignore[attr-defined]
        assert "never the rate" in shown.replace("\n", " ")
        await pilot.press("escape")
        assert not isinstance(app.screen, ExplainScreen)


async def test_question_mark_lists_the_keys_with_the_ids_to_change_them(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpScreen)
        shown = app.screen.query_one("#keys").text  # type: ignore[attr-defined]
        for identity in ("change.budget_up", "operation.apply", "plot.longer", "prompt.open", "screen.truth"):
            assert identity in shown


@pytest.mark.parametrize("pane", ["1", "2", "3", "4", "5", "7"])
async def test_each_key_has_a_line_of_its_own_on_a_small_terminal(make_app: MakeApp, pane: str) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app, size=(80, 24)) as pilot:
        await pilot.press(pane, "question_mark")
        await until(lambda: isinstance(app.screen, HelpScreen), "the keys")
        await pilot.pause()
        keys = app.screen.query_one("#keys", ScrollText)
        rows = [row for row in keys.text.split("\n") if row.startswith("  ")]
        assert max(map(len, rows)) <= keys.scrollable_content_region.width
        assert all("  " in row.strip() for row in rows)


async def test_the_last_line_shows_keys_that_work_and_a_click_presses_them(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        line = app.query_one(KeyLine)
        shown = str(line.render())
        assert "budget" in shown
        assert "apply" not in shown
        await pilot.click(KeyLine, offset=(shown.index("b budget") if "b budget" in shown else shown.index("bB budget"), 0))
        await until(lambda: bool(app.model.change), "the click to step the budget")
        assert "apply" in str(line.render())


async def test_numbers_open_the_screens_and_so_does_a_click(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        for number, name in enumerate(("dashboard", "configure", "truth", "logs", "playground"), start=1):
            await pilot.press(str(number))
            assert app.pane.id == name
        await pilot.click("#tabs", offset=(4, 0))
        await until(lambda: app.pane.id == "dashboard", "a click on the first name")


async def test_the_palette_finds_every_action_by_name(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        await pilot.press("colon", *"truth")
        await pilot.pause(0.5)
        await pilot.press("enter")
        await until(lambda: app.pane.id == "truth", "the truth table")


async def test_the_palette_offers_what_the_open_screen_can_do_and_does_it(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        await pilot.press("colon", *"tree budget: a step larger")
        await pilot.pause(0.5)
        await pilot.press("enter")
        await until(lambda: app.model.change.values == {"tree_budget": 12}, "the edit")
        await pilot.press("4", "colon", *"wrap long lines")
        await pilot.pause(0.5)
        await pilot.press("enter")
        await until(lambda: app.query_one(LogView).wrapped, "wrapped lines")


async def test_a_theme_can_be_chosen_and_changes_the_plots(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()), theme="light")
    async with running(app):
        assert app.theme == "ddtree-light"
        assert "#1f5fbf" in styles_of(app.query_one("#decode", PlotPanel))
        app.theme = "ddtree-high-contrast"
        await until(lambda: "#00d7ff" in styles_of(app.query_one("#decode", PlotPanel)), "the plot in the new colours")


async def test_an_unknown_theme_is_said_and_the_console_opens(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()), theme="sparkle")
    async with running(app):
        assert app.theme == "ddtree-dark"
        assert "no theme sparkle" in notices(app)


async def test_keys_can_be_changed_by_id_and_a_ctrl_chord_alone_is_refused(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()), keymap={"change.budget_up": "v", "operation.apply": "ctrl+g", "no.such": "x"})
    async with running(app) as pilot:
        await pilot.press("v")
        assert app.model.change.values == {"tree_budget": 12}
        assert "ctrl chord alone" in notices(app)
        await until(lambda: "there is no action no.such" in notices(app), "what is wrong with the keymap")


async def test_a_stopped_embedded_engine_is_started(make_app: MakeApp) -> None:
    link = RecordedLink(state(run=RunState.STOPPED))
    app = make_app(link)
    async with running(app):
        await until(lambda: [control.value for control in link.controls] == ["start"], "a start")


async def test_a_failed_engine_is_not_started_by_itself(make_app: MakeApp) -> None:
    link = RecordedLink(state(run=RunState.FAILED))
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.pause(0.2)
        assert link.controls == []
        assert "✗ failed" in header(app)


async def test_q_leaves_and_closes_the_host(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("q")
    assert link.closed


async def test_an_idle_second_repaints_nothing_but_what_changed(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state(rates=IDLE)))
    async with running(app) as pilot:
        panel = app.query_one(HistogramPanel)
        begun = time.process_time()
        shown = panel.text
        app.pane.show(app.model)
        await pilot.pause()
        assert panel.text == shown
        assert time.process_time() - begun < 0.5


def test_an_engine_that_has_not_been_asked_yet_is_neither_called_loading_nor_ready() -> None:
    known = state()
    first = replace(known, config=None, process=None, server=None, metrics=None, log=None, drafter=None, ready=False)
    facts = header_facts(first, now=NOW, wall=T0, drift=DriftBadge())
    assert (facts.symbol, facts.state, facts.settings) == ("◐", "running", ())
    refused = replace(first, problems={"server": "nothing answers"})
    assert header_facts(refused, now=NOW, wall=T0, drift=DriftBadge()).state == "loading"


def test_an_engine_that_was_ready_and_falls_silent_is_not_called_loading() -> None:
    silent = replace(state(), ready=False)
    facts = header_facts(silent, now=NOW, wall=T0, drift=DriftBadge())
    assert (facts.state, facts.tone) == ("running", Tone.BUSY), "it has not been asked yet"
    asked = replace(silent, problems={"server": "/server_info did not answer within 5 s"})
    facts = header_facts(asked, now=NOW, wall=T0, drift=DriftBadge())
    assert (facts.symbol, facts.state, facts.tone) == ("✗", "does not answer", Tone.BAD)


async def test_a_first_snapshot_is_followed_by_the_rest(make_app: MakeApp) -> None:
    link = RecordedLink(replace(state(), server=None, log=None, ready=False))
    app = make_app(link)
    async with running(app) as pilot:
        assert "◐ running" in header(app)
        link.push(state(revision=2))
        await pilot.pause()
        assert "● running" in header(app)
