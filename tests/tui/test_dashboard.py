"""The dashboard: is the server the one I think it is, and how fast is it?"""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from dflash_console.evidence.metrics import Rates
from dflash_console.hosts.service import RunState
from dflash_console.hosts.stranger import Stranger
from dflash_console.state import Aged, HostState
from dflash_console.tui import messages
from dflash_console.tui.facts import DriftBadge, Tone, header_facts
from dflash_console.tui.figures import live_figures
from dflash_console.tui.link import LinkError
from dflash_console.tui.model import ConsoleModel
from dflash_console.tui.widgets.connection_notice import ConnectionNotice
from dflash_console.tui.widgets.event_list import EventPanel
from dflash_console.tui.widgets.gpu_panel import GpuPanel
from dflash_console.tui.widgets.histogram import HistogramPanel
from dflash_console.tui.widgets.key_line import KeyLine
from dflash_console.tui.widgets.plot_panel import PlotPanel
from dflash_console.tui.widgets.requests_panel import RequestsPanel
from dflash_console.tui.widgets.tab_line import TabLine

from .conftest import MakeApp
from .driving import header, running, until
from .support import BUSY, EIGHT_GPUS, IDLE, NOW, START_LINES, T0, RecordedLink, state, wavy_past


async def test_the_header_names_host_unit_state_settings_and_verdict(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app):
        first, second = header(app).split("\n")
        assert "embedded ▸ ddtree-embedded ▸ ● running 2m 14s" in first
        assert first.rstrip().endswith("now")
        assert "DDTREE · budget 8 · top-k 4 · compact draft cache off" in second
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


@pytest.mark.parametrize("run", [RunState.STOPPED, RunState.FAILED])
def test_the_plots_say_beside_a_unit_that_does_not_run_that_another_program_has_its_port(run: RunState) -> None:
    taken = replace(state(run=run), stranger=Aged(Stranger(30000, (8,), "pid 8 (nc)", beside=False), T0))
    words = f"{run.value}; its port is taken (see 3)"
    assert live_figures(taken).decode_note == words
    assert live_figures(taken, "starting").decode_note == "starting …"


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (replace(state(ready=False), log=None), "asking the engine"),
        (replace(state(ready=False), log=None, problems={"server": "refused"}), "the engine loads"),
        (state(ready=False, texts=START_LINES[:3]), "the engine loads"),
        (state(ready=False), "asking the engine"),
        (replace(state(ready=False), problems={"server": "timed out"}), "asking the engine"),
        (replace(state(ready=False), problems={"server": "timed out"}, silent=True), "the engine does not answer"),
    ],
)
def test_the_plots_call_no_running_engine_loading_before_that_is_known(seen: HostState, words: str) -> None:
    figures = live_figures(seen)
    assert (figures.decode_note, figures.commit_note) == (words, words)


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
        assert "compact draft cache off" in " ".join(events.split())


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
    assert (facts.state, facts.tone) == ("running", Tone.BUSY), "it was asked before it said that it was ready"
    asked = replace(asked, silent=True)
    facts = header_facts(asked, now=NOW, wall=T0, drift=DriftBadge())
    assert (facts.symbol, facts.state, facts.tone) == ("✗", "does not answer", Tone.BAD)


@pytest.mark.parametrize(
    "seen",
    [
        replace(state(ready=False), problems={"server": "refused"}, silent=True),
        state(run=RunState.FAILED, ready=False),
        state(run=RunState.STOPPED, ready=False),
    ],
)
def test_a_start_that_an_operation_ends_on_purpose_is_not_said_to_fail(seen: HostState) -> None:
    facts = header_facts(seen, now=NOW, wall=T0, drift=DriftBadge(), busy="applying", ending="restarting")
    assert (facts.symbol, facts.state, facts.tone) == ("◑", "restarting", Tone.BUSY)
    assert live_figures(seen, "restarting", "restarting").decode_note == "restarting …"


def test_while_it_still_answers_a_start_that_is_ended_runs() -> None:
    facts = header_facts(state(), now=NOW, wall=T0, drift=DriftBadge(), busy="restarting", ending="restarting")
    assert (facts.symbol, facts.state, facts.tone) == ("●", "running", Tone.GOOD)


def test_only_the_start_that_was_there_when_the_operation_ended_it_is_being_ended() -> None:
    model = ConsoleModel()
    model.take_state(state(), T0)
    assert model.ending == ""
    model.begin_ending("restarting")
    assert model.ending == "restarting"
    model.take_state(state(invocation="bb" * 16), T0 + 1)
    assert model.ending == "", "how the new one fares is the truth"
    model.take_state(state(), T0)
    model.begin_ending("")
    assert model.ending == ""


async def test_a_first_snapshot_is_followed_by_the_rest(make_app: MakeApp) -> None:
    link = RecordedLink(replace(state(), server=None, log=None, ready=False))
    app = make_app(link)
    async with running(app):
        assert "◐ running" in header(app)
        link.push(state(revision=2))
        await until(lambda: "● running" in header(app), "the rest")
