"""Log lines: SGLang's wording and order, so that one parser reads both engines."""

from __future__ import annotations

import io
import logging
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_console.evidence.journal import LogLine
from dflash_console.evidence.start_log import StartLog
from dflash_console.tui.event_words import event_words
from dflash_console.tui.log_book import Level, LogBook
from engine_launch.embedded.api import Algorithm
from engine_launch.embedded.events import (
    DecodeBatch,
    FirstVerify,
    KvPoolReady,
    LoadEnd,
    LoadProgress,
    ModelPart,
    PrefillBatch,
    SchedulerReady,
    SettingChange,
)
from engine_launch.embedded.logs import LOGGER_NAME, SglangLog, configure_logging
from tests.engine.log_lines import RUNNER, Lines

RECORDED = (Path(__file__).parent.parent / "fixtures" / "server" / "lines.log").read_text().splitlines()


@pytest.fixture
def lines() -> Iterator[Lines]:
    yield Lines("info")
    for name in (LOGGER_NAME, "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).handlers = []


def skeleton(line: str) -> str:
    """A line without its date, and with its figures and device words blanked."""
    text = re.sub(r"^\[[^]]*\] ", "", line)
    text = re.sub(r"\b(cuda|cpu) graph: \w+", "graph: X", text).replace("available_gpu_mem", "available_mem")
    return re.sub(r"(?<![\w.])-?\d+(\.\d+)?", "N", text.replace("available_cpu_mem", "available_mem"))


def recorded(beginning: str) -> str:
    return next(skeleton(line) for line in RECORDED if line.split("] ", 1)[1].startswith(beginning))


def test_what_cannot_be_written_ends_no_server_and_leaves_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    with open("/dev/full", "w", encoding="utf-8", buffering=1) as full:
        logger = configure_logging("info", full)
        log = SglangLog(logger, full)
        log.loading(LoadProgress(ModelPart.TARGET, 0, 2))
        log.loading(LoadProgress(ModelPart.TARGET, 1, 2))
        log.end_bar()
        logger.info("a line")
        logger.handlers = []
        with pytest.raises(OSError, match="No space left"):
            full.write("so it is\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())
    assert capsys.readouterr() == ("", "")


def test_confirmation_line_of_a_tree(lines: Lines) -> None:
    lines.log.draft_runner(RUNNER)
    assert lines.texts()[0] == (
        "Initialized DDTREE draft runner. attention_backend=torch_native, model=DFlashDraftModel, block_size=8, "
        "tree_budget=8, tree_topk=4, layers_window=2048, draft_window_size=2048, compact_cache=True"
    )


def test_confirmation_line_says_what_is_off(lines: Lines) -> None:
    lines.log.draft_runner(replace(RUNNER, algorithm=Algorithm.DFLASH, layers_window=0, draft_window=0))
    assert lines.texts()[0] == (
        "Initialized DFLASH draft runner. attention_backend=torch_native, model=DFlashDraftModel, block_size=8, "
        "layers_window=None, draft_window_size=None, compact_cache=False"
    )


def test_mask_token_line_is_the_recorded_one(lines: Lines) -> None:
    lines.log.draft_runner(RUNNER)
    line = next(line for line in RECORDED if "DFLASH draft runner ready" in line)
    assert lines.texts()[1] == line.split("] ", 1)[1]


def test_lines_have_the_recorded_words_and_order(lines: Lines) -> None:
    log = lines.log
    log.loading(LoadProgress(ModelPart.TARGET, 0, 2))
    log.loaded(LoadEnd(ModelPart.TARGET, 0.22, "LlamaForCausalLM", "bfloat16", 1 << 28))
    log.kv_pool(KvPoolReady(ModelPart.TARGET, "bfloat16", 1000, 1 << 30, 1 << 30))
    log.scheduler(SchedulerReady(1000, 512, 1024, 8, 8192))
    log.prefill_batch(PrefillBatch(1, 20, 0, 0, 1000, 0, 0, 0, 4.53))
    log.decode_batch(DecodeBatch(1, 0, 75, 1000, 1.0, 0.0, 8.49, 0))
    begin = ("Load weight begin", "Load weight end", "KV Cache", "max_total_num_tokens", "Prefill batch", "Decode batch")
    ours = [skeleton(text) for text in lines.texts()]
    assert ours == [recorded(word) for word in begin]


def test_plain_decode_line_has_no_accept_figures(lines: Lines) -> None:
    lines.log.decode_batch(DecodeBatch(2, 1, 500, 1000, None, None, 33.3, 0))
    assert lines.texts() == [
        "Decode batch, #running-req: 2, #token: 500, token usage: 0.50, cpu graph: False, "
        "gen throughput (token/s): 33.30, #queue-req: 1"
    ]


def test_hot_changes_are_told_taken_or_refused(lines: Lines) -> None:
    lines.log.setting_changed(SettingChange("speculative_ddtree_budget", 8, 16, True))
    lines.log.setting_changed(SettingChange("speculative_ddtree_topk", 4, 0, False, "at least 1 is needed"))
    assert lines.texts() == [
        "Hot change applied. speculative_ddtree_budget: 8 -> 16 (from /set_internal_state)",
        "Hot change refused. speculative_ddtree_topk: 4 -> 0 (from /set_internal_state): at least 1 is needed",
    ]


def test_first_verify(lines: Lines) -> None:
    lines.log.first_verify(FirstVerify(Algorithm.DDTREE, (2, 0)))
    assert lines.texts() == ["DDTREE verify completed. num_correct_drafts_per_req=[2, 0]"]


def test_loading_bar_moves_by_carriage_return_and_ends_its_line(lines: Lines) -> None:
    for done in range(101):
        lines.log.loading(LoadProgress(ModelPart.TARGET, done, 100))
    frames = lines.bars.getvalue().split("\r")[1:]
    assert "100% Completed | 100/100" in frames[-1]
    assert frames[-1].endswith("\n")
    assert len(frames) < 10, "a bar is drawn ten times a second, not once a tensor"


def test_quiet_server_tells_only_what_is_wrong() -> None:
    quiet = Lines("warning")
    quiet.log.draft_runner(RUNNER)
    quiet.log.loading(LoadProgress(ModelPart.TARGET, 0, 2))
    quiet.log.warning("something")
    assert quiet.texts() == ["something"]
    assert quiet.bars.getvalue() == ""


def test_access_lines_look_like_uvicorns(lines: Lines) -> None:
    args = ("127.0.0.1:35140", "POST", "/generate", "1.1", 200)
    logging.getLogger("uvicorn.access").info('%s - "%s %s HTTP/%s" %d', *args)
    assert lines.texts() == [next(line for line in RECORDED if "35140" in line).split("] ", 1)[1]]


def test_access_lines_of_quiet_paths_are_left_out() -> None:
    out = io.StringIO()
    configure_logging("info", out, quiet_paths=("/metrics", "/v1/loads"))
    for path in ("/metrics", "/v1/loads", "/generate"):
        logging.getLogger("uvicorn.access").info('%s - "%s %s HTTP/%s" %d', "127.0.0.1:1", "GET", path, "1.1", 200)
    assert [line.split('"')[1] for line in out.getvalue().splitlines()] == ["GET /generate HTTP/1.1"]


def test_the_stack_of_a_loop_that_died_is_logged_and_the_console_folds_it_and_names_the_cause(lines: Lines) -> None:
    def decode_step() -> None:
        raise RuntimeError("no drafts today")

    try:
        decode_step()
    except RuntimeError as error:
        lines.log.failed(error)
    lines.log.warning("afterwards")
    stored = [LogLine(text, number=number) for number, text in enumerate(lines.out.getvalue().splitlines(), 1)]
    assert any("in decode_step" in line.text for line in stored)
    log = StartLog().add_all(stored)
    assert log.raised == "RuntimeError: no drafts today"
    assert [remark.text for remark in log.errors] == ["RuntimeError: no drafts today"]
    assert [event.words for event in event_words(log) if event.tone == "error"] == ["RuntimeError: no drafts today"]
    book = LogBook()
    book.add_all(stored)
    died, after = book.entries
    assert died.text.endswith("Scheduler hit an exception: Traceback (most recent call last): ▸ RuntimeError: no drafts today")
    assert (died.level, len(died.folded)) == (Level.ERROR, len(stored) - 2)
    assert after.text.endswith("afterwards")
