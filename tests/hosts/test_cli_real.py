"""The headless commands as programs, on a real supervised engine: what they print, and the exit codes that scripts test."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping

import pytest

from tests.ports import free_port

from .commands import Console, console, environment
from .conftest import MakeUnit, Unit
from .other_engines import another_engine

__all__ = ["console", "environment"]

TREE = ("--speculative-algorithm", "DDTREE")


@pytest.fixture
async def engine(make_unit: MakeUnit, console: Console) -> Unit:
    """A running, confirmed engine."""
    unit = make_unit(*TREE, "--speculative-ddtree-budget", "8", "--speculative-draft-window-size", "512")
    started = await console("start", "--json")
    assert started.code == 0, started.err + started.out
    return unit


def values(document: dict[str, object], *path: str) -> object:
    found: object = document
    for name in path:
        assert isinstance(found, dict)
        found = found[name]
    return found


async def test_start_is_confirmed_and_status_reads_the_engines_own_report(engine: Unit, console: Console) -> None:
    status = await console("status", "--json")
    assert status.code == 0
    document = status.document
    assert (document["host"], document["unit"]) == ("embedded", "engine")
    assert values(document, "service", "state") == "running"
    assert len(str(values(document, "service", "invocation_id"))) == 32
    assert isinstance(values(document, "service", "main_pid"), int)
    assert values(document, "engine", "ready") is True
    assert values(document, "config", "tree_budget") == 8
    assert values(document, "config", "draft_window") == 512
    assert values(document, "config", "compact_cache") is True
    assert "internal_states" in str(values(document, "config_sources", "tree_budget"))
    assert values(document, "metrics", "running") == 0
    assert values(document, "drift", "count") == 0


async def test_a_plan_changes_nothing_and_shows_everything(engine: Unit, console: Console) -> None:
    before = engine.file.read_text()
    plan = (await console("plan", "--set", "tree_budget=16", "--set", "draft_window=off", "--restart", "--json")).document
    assert '-    "8",' in str(plan["diff"])
    assert '+    "16",' in str(plan["diff"])
    assert "--speculative-draft-window-size" not in plan["command"]  # type: ignore[operator]
    assert values(plan, "predictions", "verify_width") == 17
    assert plan["mode"] == "restart"
    assert all(set(finding) >= {"severity", "code", "message"} for finding in plan["findings"])  # type: ignore[attr-defined]
    assert engine.file.read_text() == before


async def test_a_restart_that_changes_settings_is_confirmed_by_a_new_start(engine: Unit, console: Console) -> None:
    before = values((await console("status", "--json")).document, "service", "invocation_id")
    applied = await console("apply", "--set", "draft_window=1024", "--set", "tree_budget=16", "--restart", "--yes", "--json")
    document = applied.document
    assert applied.code == 0, applied.out
    assert document["confirmed"] is True
    assert document["mode"] == "restart"
    assert document["rolled_back"] is False
    assert document["invocation_id"] not in (None, before)
    stages = document["stages"]
    assert isinstance(stages, list)
    assert all(set(stage) >= {"name", "status", "seconds", "evidence"} for stage in stages)
    assert "draft runner" in [stage["name"] for stage in stages]
    status = (await console("status", "--json")).document
    assert values(status, "config", "draft_window") == 1024
    assert values(status, "config", "tree_budget") == 16


async def test_a_hot_change_keeps_the_start_and_is_drift_until_it_is_written_down(engine: Unit, console: Console) -> None:
    before = values((await console("status", "--json")).document, "service", "invocation_id")
    applied = await console("apply", "--set", "tree_budget=32", "--hot", "--yes", "--json")
    assert applied.code == 0, applied.out
    assert applied.document["confirmed"] is True
    assert applied.document["mode"] == "hot"
    status = (await console("status", "--json")).document
    assert values(status, "service", "invocation_id") == before
    assert values(status, "config", "tree_budget") == 32
    drift = await console("drift", "--json")
    assert drift.code == 3
    rows = {row["knob"]: row for row in drift.document["items"]}  # type: ignore[attr-defined]
    assert rows["tree_budget"]["verdict"] == "drift"
    assert (rows["tree_budget"]["unit"], rows["tree_budget"]["server"]) == (8, 32)
    assert rows["draft_window"]["verdict"] == "ok"
    back = await console("rollback", "--yes", "--json")
    assert back.code == 0, back.out
    assert values((await console("status", "--json")).document, "config", "tree_budget") == 8
    assert (await console("drift")).code == 0


async def test_an_engine_that_ignores_a_setting_is_exit_4_and_goes_back_when_asked(make_unit: MakeUnit, console: Console) -> None:
    make_unit(*TREE, "--speculative-ddtree-budget", "8", faults="16=ignore-flag")
    assert (await console("start")).code == 0
    words = ("apply", "--set", "draft_window=512", "--set", "tree_budget=16", "--restart", "--yes", "--json")
    failed = await console(*words)
    assert failed.code == 4
    assert failed.document["confirmed"] is False
    assert failed.document["verdict"] == "another value is in effect"
    assert (await console("rollback", "--yes")).code == 0
    assert values((await console("status", "--json")).document, "configured", "tree_budget") == 8
    back = await console(*words, "--rollback-on-failure")
    assert back.code == 4
    assert back.document["rolled_back"] is True
    assert values((await console("status", "--json")).document, "config", "tree_budget") == 8


REFUSED = (
    (("apply", "--set", "tree_budget=16"), 2, "add --yes"),
    (("apply", "--set", "tree_budget=0", "--yes"), 2, "tree_budget must be at least 1"),
    (("apply", "--set", "tree_bugdet=4", "--yes"), 2, "there is no setting called tree_bugdet"),
    (("apply", "--yes"), 2, "nothing to change"),
    (("plan", "--profile", "nope"), 2, "there is no profile called nope"),
    (("apply", "--set", "layers_window=off", "--hot", "--yes"), 1, "layers_window cannot be changed while the engine runs"),
    (("apply", "--resume", "--yes"), 1, "nothing to resume"),
    (("--read-only", "apply", "--set", "tree_budget=16", "--yes"), 1, "--read-only"),
    (("--read-only", "stop", "--yes"), 1, "--read-only"),
    (("--unit", "nope", "status"), 2, "there is no unit called nope"),
    (("--host", "root@gpu-a:ssh", "status"), 2, "the port 'ssh' is no number"),
    ((), 2, "need a terminal"),
)


async def test_what_cannot_be_done_is_one_sentence_and_changes_nothing(engine: Unit, console: Console) -> None:
    before = engine.file.read_text()
    started = (await engine.service.state()).invocation_id
    # One engine for all of them: none may touch it.
    for words, code, said in REFUSED:
        ended = await console(*words)
        assert (ended.code, said in ended.err + ended.out) == (code, True), (words, ended)
    assert engine.file.read_text() == before
    assert (await engine.service.state()).invocation_id == started


async def test_a_start_of_an_engine_that_runs_is_nothing_to_do_and_one_of_an_engine_that_loads_is_refused(
    make_unit: MakeUnit, console: Console
) -> None:
    unit = make_unit(*TREE)
    assert (await console("start")).code == 0
    before = await unit.service.state()
    again = await console("start")
    assert (again.code, again.out.strip()) == (
        0,
        f"✓ nothing to do: engine runs already (process {before.main_pid}) and answers; restart starts it anew",
    )
    as_json = (await console("start", "--json")).document
    assert (as_json["confirmed"], as_json["verdict"], as_json["stages"]) == (False, "nothing to do", [])
    assert as_json["invocation_id"] == before.invocation_id
    assert before.main_pid is not None
    os.kill(before.main_pid, signal.SIGSTOP)
    try:
        silent = await console("start")
    finally:
        os.kill(before.main_pid, signal.SIGCONT)
    assert (silent.code, "✗ refused: " in silent.out, "does not answer; restart starts it anew" in silent.out) == (1, True, True)
    assert (await unit.service.state()).invocation_id == before.invocation_id


async def test_the_log_is_one_json_object_a_line_and_holds_no_key(make_unit: MakeUnit, console: Console) -> None:
    unit = make_unit(*TREE, "--api-key", "sk-very-secret")
    assert (await console("start")).code == 0
    logs = await console("logs", "--this-start", "--json")
    lines = [json.loads(line) for line in logs.out.splitlines()]
    assert any(line["text"].endswith("ready to roll!") for line in lines)
    assert len({line["invocation_id"] for line in lines}) == 1
    everything = (
        logs.out + (await console("plan", "--set", "tree_budget=16", "--restart")).out + (await console("status", "--json")).out
    )
    assert "sk-very-secret" not in everything
    assert "sk-very-secret" in unit.file.read_text()


async def test_ctrl_c_in_an_apply_leaves_a_journal_from_which_it_is_resumed(
    make_unit: MakeUnit, console: Console, environment: Mapping[str, str]
) -> None:
    make_unit(*TREE, "--speculative-ddtree-budget", "8", faults="16=hang")
    assert (await console("start")).code == 0
    apply = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dflash_console", "apply", "--set", "tree_budget=16", "--restart", "--yes"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(environment),
    )
    assert apply.stdout is not None
    while b"process up" not in await asyncio.wait_for(apply.stdout.readline(), 90):
        pass
    apply.send_signal(signal.SIGINT)
    _, err = await asyncio.wait_for(apply.communicate(), 90)
    assert apply.returncode == 4
    assert b"apply --resume" in err
    assert b"Traceback" not in err
    back = await console("rollback", "--yes")
    assert back.code == 0, back.out + back.err
    assert values((await console("status", "--json")).document, "config", "tree_budget") == 8


async def test_the_answer_no_changes_nothing(engine: Unit, environment: Mapping[str, str]) -> None:
    import pty

    before = engine.file.read_text()
    master, slave = pty.openpty()
    try:
        apply = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "dflash_console", "apply", "--set", "tree_budget=16", "--restart"),
            stdin=slave,
            stdout=slave,
            stderr=asyncio.subprocess.PIPE,
            env={**environment, "TERM": "xterm"},
        )
        seen = b""
        while b"[y/N]" not in seen:
            seen += await asyncio.wait_for(asyncio.to_thread(os.read, master, 4096), 90)
        os.write(master, b"n\n")
        _, err = await asyncio.wait_for(apply.communicate(), 90)
    finally:
        os.close(slave)
        os.close(master)
    assert b"tree_budget" in seen
    assert apply.returncode == 1
    assert b"nothing was changed" in err
    assert engine.file.read_text() == before


async def test_beside_a_unit_file_that_cannot_be_read_nothing_is_said_to_agree(engine: Unit, console: Console) -> None:
    engine.file.write_text("bad")
    for stopped in (False, True):
        if stopped:
            assert (await console("stop", "--yes")).code == 0
        drift = await console("drift")
        assert (drift.code, "not valid TOML" in " ".join(drift.out.split())) == (1, True), drift.out
        status = (await console("status")).out
        assert "not valid TOML" in status
        assert "all sources agree" not in status
        assert "no drafter is named" not in status
        assert "a small model on this CPU" in status, "what was started from it was the embedded engine"
    start = await console("start")
    assert (start.code, "not valid TOML" in start.err) == (1, True), start.err


async def test_a_roll_back_shows_its_plan_before_it_asks(engine: Unit, console: Console) -> None:
    assert (await console("apply", "--set", "tree_budget=16", "--restart", "--yes")).code == 0
    before = engine.file.read_text()
    shown = await console("rollback")
    assert shown.code == 2
    assert "look at the plan, then add --yes" in shown.err
    assert "goes back to the configuration that was confirmed on" in shown.out
    assert '-    "16",' in shown.out
    assert "Restarts " in shown.out
    assert engine.file.read_text() == before


async def test_a_roll_back_that_could_not_listen_is_refused_before_it_asks(engine: Unit, console: Console) -> None:
    assert (await console("apply", "--set", f"flag:--port={free_port()}", "--restart", "--yes")).code == 0
    before = engine.file.read_text()
    with another_engine(engine.port, 8):
        ended = await console("rollback", "--yes")
    assert ended.code == 1
    assert "flag:--port: " in ended.out
    assert f"nothing was changed: port {engine.port} of that configuration is held by pid " in ended.err
    assert engine.file.read_text() == before


async def test_hosts_and_doctor_see_the_engine(engine: Unit, console: Console) -> None:
    hosts = (await console("hosts", "--json")).document["hosts"]
    assert hosts[0]["name"] == "embedded"  # type: ignore[index]
    assert hosts[0]["state"] == "running"  # type: ignore[index]
    doctor = await console("doctor", "--json")
    checks = {check["name"]: check for check in doctor.document["checks"]}  # type: ignore[attr-defined]
    assert checks["service"]["status"] == "ok"
    assert checks["server"]["status"] == "ok"
    assert checks["metrics"]["status"] == "ok"
