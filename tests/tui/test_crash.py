"""When the console itself fails."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from textual.css.query import NoMatches

from dflash_console.apply import ApplyResult
from dflash_console.load.client import OnChunk, OnDone
from dflash_console.load.records import RequestRecord
from dflash_console.load.request import PromptRequest
from dflash_console.tui.app import ConsoleApp, ConsoleSettings
from dflash_console.tui.crash import KEPT, save_report, sentence
from dflash_console.tui.link import Control, OnStage
from dflash_console.tui.screens.apply import ApplyScreen
from dflash_console.tui.widgets.prompt_dock import PromptDock

from .driving import notices, running, until
from .support import RecordedLink, state


def console(crashes: Path | None = None, link: RecordedLink | None = None) -> ConsoleApp:
    link = link or RecordedLink(state())

    async def open_link() -> RecordedLink:
        return link

    return ConsoleApp(open_link, ConsoleSettings(crashes=crashes))


def list_reports(folder: Path) -> list[Path]:
    return list(folder.glob("*.txt"))


async def test_an_error_of_the_consoles_own_ends_in_one_sentence_and_a_report_without_secrets(tmp_path: Path) -> None:
    app = console(tmp_path)

    def fail() -> None:
        raise RuntimeError("--api-key sk-very-secret was refused")

    async def run() -> None:
        async with running(app) as pilot:
            app.call_later(fail)
            await pilot.pause()

    with pytest.raises(RuntimeError):
        await run()
    (report,) = list_reports(tmp_path)
    assert "an error of its own ended the console (RuntimeError)" in app.failure
    assert str(report) in app.failure
    assert "\n" not in app.failure
    assert "Traceback" in report.read_text()
    assert "sk-very-secret" not in report.read_text()


class StumblingLink(RecordedLink):
    """A host whose operations and prompts fail as only a mistake of the console's own would."""

    async def control(self, control: Control, on_stage: OnStage) -> ApplyResult:
        raise KeyError("--api-key sk-very-secret")

    async def send(self, requests: Sequence[PromptRequest], on_chunk: OnChunk, on_done: OnDone) -> tuple[RequestRecord, ...]:
        raise KeyError("--api-key sk-very-secret")


async def test_an_operation_that_fails_by_an_error_of_the_consoles_own_is_over_told_and_reported(tmp_path: Path) -> None:
    app = console(tmp_path, StumblingLink(state()))
    async with running(app) as pilot:
        app.operations.control(Control.RESTART)
        await until(lambda: isinstance(app.screen, ApplyScreen) and "own ended it (KeyError)" in app.screen.text, "its end")
        assert app.model.busy == ""
        await until(lambda: "while restarting (KeyError)" in notices(app), "a notice")
        (report,) = list_reports(tmp_path)
        assert str(report) in notices(app)
        assert "sk-very-secret" not in report.read_text() + notices(app) + app.screen.text  # type: ignore[attr-defined]
        await pilot.press("escape")
        assert len(app.screen_stack) == 1, "the console goes on"


async def test_prompts_that_fail_by_an_error_of_the_consoles_own_are_over_and_told(tmp_path: Path) -> None:
    app = console(tmp_path, StumblingLink(state()))
    async with running(app) as pilot:
        await pilot.press("p", *"hi", "enter")
        dock = app.query_one(PromptDock)
        await until(lambda: "an error of the console's own (KeyError)" in dock.text, "a word in the dock")
        assert not dock.running
        await until(lambda: "while sending prompts (KeyError)" in notices(app), "a notice")


async def test_a_tick_while_the_screens_are_taken_down_looks_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = console(tmp_path, StumblingLink(state()))
    async with running(app):
        monkeypatch.setattr(app, "_judge_age", lambda: True)
        monkeypatch.setattr(app, "_header_shown", 0.0)
        await app.query_one("#decode").remove()
        with monkeypatch.context() as ending:
            ending.setattr(app, "_running", False)
            app.tick()
        with pytest.raises(NoMatches):
            app.tick()
        monkeypatch.undo()


def test_reports_are_bounded(tmp_path: Path) -> None:
    for number in range(KEPT + 5):
        (tmp_path / f"20200101-0000{number:02}.txt").write_text("old")
    assert save_report(ValueError("x"), tmp_path) is not None
    assert len(list_reports(tmp_path)) == KEPT


def test_a_report_that_cannot_be_written_is_not_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    report = save_report(ValueError("x"), tmp_path / "file")
    assert report is None
    assert "Report" not in sentence(ValueError("x"), report)
