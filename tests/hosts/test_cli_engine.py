"""The commands on the real embedded engine: figures of real answers, and the same text with and without speculation."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import sys
from collections.abc import Iterator

import pytest

from dflash_console import cli
from dflash_console.firing import fire
from dflash_console.load.request import Endpoint, PromptRequest
from dflash_console.session import HostSession, open_session

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def run(*words: str) -> tuple[int, str]:
    """A command's exit code and standard output."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = cli.main(words)
    return code, out.getvalue()


@pytest.fixture(scope="module", autouse=True)
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The embedded engine, started once for all tests of this module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDTREE_HOME", str(tmp_path_factory.mktemp("home")))
        code, out = run("start", "--json")
        try:
            assert code == 0, out
            # Greedy texts are equal to the last token in fp32 only; in bf16 near-ties may fall either way with the verify width.
            code, out = run("apply", "--set", "flag:--dtype=float32", "--restart", "--yes", "--json")
            assert code == 0, out
            yield
        finally:
            run("stop", "--yes")


def prompt(*words: str) -> list[dict[str, object]]:
    code, out = run("prompt", *words, "--json")
    assert code == 0, out
    requests = json.loads(out)["requests"]
    assert isinstance(requests, list)
    return requests


def test_a_chat_answer_carries_the_engines_own_figures() -> None:
    (request,) = prompt("Name three colours.", "--max-tokens", "24")
    assert request["completion_tokens"] == 24
    assert request["finish_reason"] == "length"
    assert request["commit_source"] == "histogram"
    histogram = request["accept_histogram"]
    assert isinstance(histogram, list)
    assert sum(histogram) == request["verify_calls"]
    # Prefill's token and each verify's accepted drafts and bonus; the last verify may be cut at the limit.
    tokens = 1 + sum((accepted + 1) * count for accepted, count in enumerate(histogram))
    assert 24 <= tokens <= 24 + 7


def test_the_chat_endpoint_gives_the_same_answer_and_says_that_it_streams_no_figures() -> None:
    words = ("Name three colours.", "--max-tokens", "24")
    (turn,), (chat,) = prompt(*words), prompt(*words, "--openai")
    assert (turn["endpoint"], chat["endpoint"]) == ("/generate", "/v1/chat/completions")
    assert (turn["text"], turn["prompt_tokens"]) == (chat["text"], chat["prompt_tokens"])
    assert (chat["commit_length"], chat["commit_source"]) == (None, "not reported")
    assert "streams no figures of verifies" in str(chat["note"])


def test_a_run_by_the_chat_endpoint_has_its_commit_length_from_the_servers_counters() -> None:
    words = ("Name three colours.", "--max-tokens", "24", "--n", "3", "--json")
    turn, chat = (json.loads(run("prompt", *words, *more)[1])["summary"] for more in ((), ("--openai",)))
    assert (turn["commit_source"], chat["commit_source"]) == ("histogram", "server's counters over the run")
    # Of a last verify that the limit cuts, the counters hold what was kept and the histogram what was accepted.
    assert chat["commit_length"] == pytest.approx(turn["commit_length"], abs=1.0)
    assert chat["verify_calls"] == turn["verify_calls"]


def test_greedy_text_is_the_same_with_a_tree_with_another_budget_and_without_speculation() -> None:
    words = ("Count from one to eight in words.", "--max-tokens", "32")
    (tree,), (small,), (plain,) = (
        prompt(*words),
        prompt(*words, "--set", "tree_budget=2"),
        prompt(*words, "--algorithm", "PLAIN"),
    )
    assert plain["commit_length"] is None
    assert tree["text"] == small["text"] == plain["text"]


def test_copies_run_at_once_and_are_all_measured() -> None:
    requests = prompt("Say hello.", "--n", "3", "--max-tokens", "12", "--ignore-eos")
    assert [request["completion_tokens"] for request in requests] == [12, 12, 12]
    assert all(request["ttft_s"] is not None for request in requests)


async def until_running(session: HostSession, wanted: int) -> None:
    """Wait until the engine itself says that so many requests run."""
    running = None
    for _ in range(600):
        loads = (await session.watcher.refresh()).loads
        running = loads.value.running if loads is not None else None
        if running == wanted:
            return
        await asyncio.sleep(0.1)
    pytest.fail(f"{running} requests run, not {wanted}")


@pytest.mark.parametrize("words", [(), ("--json",)])
async def test_ctrl_c_cancels_the_answers_and_says_how_many_had_ended(words: tuple[str, ...]) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dflash_console", "prompt", "Write a long story.", "--max-tokens", "2000", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    session = await open_session()
    try:
        await until_running(session, 1)
        process.send_signal(signal.SIGINT)
        out, err = await asyncio.wait_for(process.communicate(), 30)
        await until_running(session, 0)
    finally:
        await session.close()
    assert process.returncode == 1
    assert b"interrupted: 0 of 1 answers had ended" in err
    assert b"Traceback" not in err
    if words:
        assert json.loads(out)["requests"] == []


async def test_a_cancelled_prompt_frees_its_slot_and_ended_ones_are_in_history() -> None:
    session = await open_session()
    try:
        long = PromptRequest.of("Write a long story.", endpoint=Endpoint.GENERATE, max_tokens=2_000)
        begun = asyncio.Event()
        task = asyncio.create_task(fire(session, [long], lambda _: begun.set()))
        await asyncio.wait_for(begun.wait(), 60)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await until_running(session, 0)
        (record,) = await fire(session, [PromptRequest.of("Say hello.", max_tokens=4)])
        kept = await session.history.requests(session.key)
        assert record.completion_tokens in [row.completion_tokens for row in kept]
    finally:
        await session.close()


async def test_a_frozen_engine_is_said_after_seconds_and_given_up_in_the_time_that_was_given() -> None:
    session = await open_session()
    try:
        pid = (await session.service.state()).main_pid
    finally:
        await session.close()
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "dflash_console", "prompt", "Say hello.", "--first-token-timeout", "8"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        _, err = await asyncio.wait_for(process.communicate(), 60)
    finally:
        os.kill(pid, signal.SIGCONT)
    said = err.decode().splitlines()
    assert process.returncode == 1
    assert "nothing has come yet for 5 s" in said[0]
    assert "no token came within 8 s" in said[-1]
