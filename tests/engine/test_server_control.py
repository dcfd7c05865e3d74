"""Reports, hot settings, keys and the other endpoints around the answers."""

from __future__ import annotations

import http.client
import json
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine_launch.embedded.api import RoundRecord
from engine_launch.embedded.logs import LOGGER_NAME, server_args_line
from engine_launch.embedded.server_options import server_args
from tests.engine.scripted import ScriptedEngine, byte_tokenizer, wait_until
from tests.engine.serving import Running, options_for, serving

RECORDED = Path(__file__).parent.parent / "fixtures" / "server"
KEY, ADMIN = "sk-very-secret", "adm-more-secret"


@pytest.fixture(scope="module")
def flags() -> tuple[str, ...]:
    return ("--served-model-name", "tiny")


def test_health(server: Running) -> None:
    assert server.client.get("/health").status_code == 200
    assert server.client.get("/health_generate").status_code == 200


def test_health_says_when_the_decode_loop_has_died(engine: ScriptedEngine, server: Running) -> None:
    engine.alive = False
    assert server.client.get("/health").status_code == 503
    assert server.client.get("/health_generate").status_code == 503
    body = {"messages": [{"role": "user", "content": "x"}]}
    for path in ("/generate", "/v1/chat/completions"):
        assert server.post(path, body if "chat" in path else {"text": "x"}).status_code == 503


def test_probe_that_waits_for_a_slot_looks_at_those_who_have_one(
    engine: ScriptedEngine, server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine_launch.embedded.server.HEALTH_TIMEOUT", 0.2)
    engine.script.pause = 30.0
    assert server.client.get("/health_generate").status_code == 503
    engine.decoding = True
    assert server.client.get("/health_generate").status_code == 200


def test_health_generate_fails_when_the_engine_does(engine: ScriptedEngine, server: Running) -> None:
    engine.script.refuse = "the engine has stopped"
    assert server.client.get("/health").status_code == 200
    assert server.client.get("/health_generate").status_code == 503


def test_server_info_keeps_asked_and_in_effect_apart(server: Running) -> None:
    assert server.post("/set_internal_state", {"server_args": {"speculative_ddtree_budget": 32}}).json() == [True]
    info = server.client.get("/server_info").json()
    assert info["speculative_ddtree_budget"] == 8
    assert info["startup_settings"]["speculative_ddtree_budget"] == 8
    (now,) = info["internal_states"]
    assert now["speculative_ddtree_budget"] == 32
    assert (info["status"], info["engine"]) == ("ready", "embedded")
    assert info["version"].startswith("ddtree-embedded ")


def test_server_info_tells_what_a_console_looks_for(server: Running) -> None:
    info = server.client.get("/server_info").json()
    (now,) = info["internal_states"]
    assert (now["algorithm"], now["speculation"], now["block_size"]) == ("DDTREE", True, 8)
    assert (now["speculative_ddtree_topk"], now["layers_window"]) == (4, 512)
    assert (now["speculative_draft_window_size"], now["compact_cache"]) == (512, True)
    assert (now["last_gen_throughput"], now["avg_spec_accept_length"]) == (12.5, 2.25)
    assert now["draft_kv_bytes"] == 1 << 20
    assert (now["avg_tree_nodes"], now["verify_curve"]) == (7.5, [[1, 9.5], [9, 13.25]])
    assert now["verify_curves"] == {"64": [[1, 9.5], [9, 13.25]], "1024": [[1, 12.0], [9, 20.0]]}
    assert (now["round_seconds"], now["rounds"]) == ({"verify": 1.5}, 6)
    assert info["served_model_name"] == "tiny"
    assert info["max_total_num_tokens"] == 4096


def test_window_that_is_off_is_null(server: Running) -> None:
    server.post("/set_internal_state", {"server_args": {"speculative_draft_window_size": 0}})
    (now,) = server.client.get("/server_info").json()["internal_states"]
    assert now["speculative_draft_window_size"] is None
    assert now["compact_cache"] is False


@pytest.mark.parametrize(("old", "new"), [("/get_server_info", "/server_info"), ("/get_model_info", "/model_info")])
def test_old_names_answer_and_say_that_they_are_old(
    server: Running, caplog: pytest.LogCaptureFixture, old: str, new: str
) -> None:
    logger = logging.getLogger(LOGGER_NAME)
    logger.propagate = True
    with caplog.at_level(logging.WARNING, LOGGER_NAME):
        assert server.client.get(old).json().keys() == server.client.get(new).json().keys()
    assert f"Endpoint '{old}' is deprecated" in caplog.text


def test_loads_have_the_recorded_keys(server: Running) -> None:
    ours, theirs = server.client.get("/v1/loads").json(), json.loads((RECORDED / "loads.json").read_text())
    assert list(ours) == list(theirs)
    assert ours["loads"][0].keys() <= theirs["loads"][0].keys()
    assert ours["loads"][0]["speculative"] == {"accept_length": 2.5, "accept_rate": 0.25}


def test_models(server: Running) -> None:
    (card,) = server.client.get("/v1/models").json()["data"]
    assert (card["id"], card["max_model_len"]) == ("tiny", 512)
    assert server.client.get("/v1/models/tiny").json() == card
    other = server.client.get("/v1/models/someone/else")
    assert (other.status_code, other.json()["type"]) == (404, "NotFoundError")


def test_old_load_report_counts_requests_and_tokens(server: Running) -> None:
    (load,) = server.client.get("/get_load").json()
    assert (load["dp_rank"], load["num_reqs"], load["num_waiting_reqs"], load["num_tokens"]) == (0, 1, 1, 100)


@pytest.mark.parametrize(
    ("args", "answer"),
    [
        ({"speculative_ddtree_topk": 2}, [True]),
        ({"speculation": 0}, [True]),
        ({"speculation": True}, [True]),
        ({"no_such_setting": 1}, [False]),
        ({"speculative_ddtree_topk": 2, "no_such_setting": 1}, [False]),
    ],
)
def test_hot_change_answers_with_a_list_and_200(
    engine: ScriptedEngine, server: Running, args: dict[str, float], answer: list[bool]
) -> None:
    args = {name: int(value) for name, value in args.items()}
    response = server.post("/set_internal_state", {"server_args": args})
    assert (response.status_code, response.json()) == (200, answer)
    assert engine.changes == (list(args.items()) if answer == [True] else [])


def test_refused_change_takes_the_others_back(engine: ScriptedEngine, server: Running) -> None:
    engine.refused_changes = frozenset({"speculation"})
    args = {"speculative_ddtree_budget": 64, "speculative_ddtree_topk": 2, "speculation": 0}
    assert server.post("/set_internal_state", {"server_args": args}).json() == [False]
    assert engine.settings == ScriptedEngine().settings


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"server_args": {}},
        {"server_args": {"speculation": "on"}},
        {"server_args": [1]},
        {"server_args": {"speculation": 1}, "rank": 0},
    ],
)
def test_hot_change_without_numbers_is_a_400(server: Running, body: object) -> None:
    assert server.post("/set_internal_state", body).status_code == 400


def test_flush_says_whether_it_was_done(engine: ScriptedEngine, server: Running) -> None:
    assert server.post("/flush_cache", None).status_code == 200
    engine.running += 1
    try:
        assert server.post("/flush_cache", None).status_code == 400
    finally:
        engine.running -= 1


def test_unknown_path_and_method(server: Running) -> None:
    assert server.client.get("/nope").json() == {"detail": "Not Found"}
    assert server.client.get("/generate").status_code == 405
    assert server.client.get("/metrics").status_code == 404, "metrics must be asked for with --enable-metrics"


@pytest.mark.parametrize("limit", ["0", "1001", "-1", "x", "", "9" * 5000])
def test_number_of_rounds_is_bounded(server: Running, limit: str) -> None:
    assert server.client.get("/ddtree/rounds", params={"limit": limit}).status_code == 400


def test_rounds_come_with_the_texts_of_their_tokens(engine: ScriptedEngine, server: Running) -> None:
    record = RoundRecord(
        round=7,
        start=20,
        root=ord("r"),
        tokens=(ord("a"), ord("b")),
        parents=(0, 1),
        logprobs=(-0.1, -0.5),
        path=(0, 1),
        bonus=ord("z"),
        seconds={"verify": 0.02},
    )
    engine.rounds += [record, record]
    (one,) = server.client.get("/ddtree/rounds?limit=1").json()["rounds"]
    assert one["token_texts"] == ["a", "b"]
    assert (one["root_text"], one["bonus_text"]) == ("r", "z")
    assert (one["parents"], one["path"], one["seconds"]) == ([0, 1], [0, 1], {"verify": 0.02})
    assert server.client.get("/ddtree/rounds?limit=none").status_code == 400


# Keys


@pytest.fixture(scope="module")
def locked() -> Iterator[Running]:
    with serving(ScriptedEngine(), "--api-key", KEY, "--enable-metrics") as running:
        yield running


def test_key_is_asked_for_everywhere_but_by_probes(locked: Running) -> None:
    for path in ("/server_info", "/v1/models", "/v1/loads", "/nope"):
        response = locked.client.get(path)
        assert (response.status_code, response.json()) == (401, {"error": {"message": "Unauthorized"}})
    assert locked.post("/generate", {"text": "x"}).status_code == 401
    assert locked.client.get("/health").status_code == locked.client.get("/metrics").status_code == 200


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (f"Bearer {KEY}", 200),
        (f"bearer {KEY}", 200),
        (f"Bearer {KEY}x", 401),
        ("Bearer", 401),
        (KEY, 401),
        (f"Basic {KEY}", 401),
    ],
)
def test_only_the_right_bearer_key_opens(locked: Running, header: str, status: int) -> None:
    assert locked.client.get("/v1/models", headers={"Authorization": header}).status_code == status


def test_key_is_never_shown(locked: Running) -> None:
    info = locked.client.get("/server_info", headers={"Authorization": f"Bearer {KEY}"}).text
    options = options_for("--api-key", KEY, "--admin-api-key", ADMIN)
    for text in (info, server_args_line(server_args(options)), repr(options)):
        assert KEY not in text
        assert ADMIN not in text
    assert json.loads(info)["api_key"] == "******"


def test_changes_need_the_admin_key_where_there_is_one() -> None:
    body = {"server_args": {"speculation": 0}}
    with serving(ScriptedEngine(), "--api-key", KEY, "--admin-api-key", ADMIN) as server:
        assert server.post("/set_internal_state", body, Authorization=f"Bearer {KEY}").status_code == 401
        assert server.post("/set_internal_state", body, Authorization=f"Bearer {ADMIN}").status_code == 200
        assert server.client.get("/v1/models", headers={"Authorization": f"Bearer {KEY}"}).status_code == 200


@pytest.mark.parametrize("path", ["/generate", "/v1/completions"])
def test_nobody_waits_while_a_long_prompt_is_turned_into_tokens(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, engine = byte_tokenizer(), ScriptedEngine()
    encode, may_go_on = tokenizer.encode, threading.Event()

    def slowly(text: str) -> tuple[int, ...]:
        assert may_go_on.wait(10)
        return encode(text)

    monkeypatch.setattr(tokenizer, "encode", slowly)
    body = {"text" if path == "/generate" else "prompt": "long"}
    with serving(engine, tokenizer=tokenizer) as server, ThreadPoolExecutor(1) as other:
        answer = other.submit(server.post, path, body)
        try:
            assert server.client.get("/health", timeout=5).status_code == 200
            assert engine.submitted == []
        finally:
            may_go_on.set()
        assert answer.result().status_code == 200


# Clients that leave


def endless(engine: ScriptedEngine) -> None:
    engine.script.ends, engine.script.pause = False, 0.01


@pytest.mark.parametrize("path", ["/generate", "/v1/chat/completions"])
@pytest.mark.parametrize("stream", [True, False])
def test_client_that_leaves_frees_its_slot(engine: ScriptedEngine, server: Running, path: str, stream: bool) -> None:
    endless(engine)
    body = {"stream": stream, "messages": [{"role": "user", "content": "x"}], "n": 2, "max_tokens": 400}
    if path == "/generate":
        body = {"stream": stream, "text": "x", "sampling_params": {"n": 2, "max_new_tokens": 400}}
    if stream:
        with server.client.stream("POST", path, json=body) as response:
            next(response.iter_lines())
    else:
        connection = http.client.HTTPConnection(server.url.removeprefix("http://"))
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        # Who leaves before anything has begun has no slot to free.
        assert wait_until(lambda: len(engine.submitted) == 2)
        connection.close()
    assert wait_until(lambda: len(engine.aborted) == 2 and engine.running == 0)
    assert sorted(engine.aborted) == sorted(request.rid for request in engine.submitted)


def test_abort_request_ends_the_answer_with_abort(engine: ScriptedEngine, server: Running) -> None:
    endless(engine)
    body = {"text": "x", "rid": "long", "stream": True, "sampling_params": {"max_new_tokens": 400}}
    with server.client.stream("POST", "/generate", json=body) as response:
        lines = response.iter_lines()
        next(lines)
        assert server.post("/abort_request", {"rid": "long"}).status_code == 200
        events = [line for line in lines if line.startswith("data: {")]
    finish = json.loads(events[-1].removeprefix("data: "))["meta_info"]["finish_reason"]
    assert finish == {"type": "abort", "message": "aborted", "status_code": None, "err_type": None}


@pytest.mark.parametrize(("rid", "ended"), [("whole", ["whole_0", "whole_1"]), ("copy_1", ["copy_1"])])
def test_abort_by_the_id_of_a_call_ends_all_its_copies_and_by_that_of_a_copy_one(
    engine: ScriptedEngine, server: Running, rid: str, ended: list[str]
) -> None:
    endless(engine)
    call = rid.partition("_")[0]
    body = {"text": "x", "rid": call, "stream": True, "sampling_params": {"n": 2, "max_new_tokens": 400}}
    with server.client.stream("POST", "/generate", json=body) as response:
        lines = response.iter_lines()  # kept: a stream whose reader is dropped is closed
        next(lines)
        server.post("/abort_request", {"rid": call[:-1]})
        server.post("/abort_request", {"rid": rid})
        # An earlier test's stream may only now be closing.
        assert [one for one in engine.aborted if one.startswith(call)] == ended


def test_refused_request_leaves_the_running_one_of_the_same_id_alone(engine: ScriptedEngine, server: Running) -> None:
    body = {"text": "x", "rid": "same", "stream": True, "sampling_params": {"max_new_tokens": 400}}
    with server.client.stream("POST", "/generate", json=body) as response:
        next(response.iter_lines())
        engine.script.refuse = "a request with the id 'same' is already running"
        assert server.post("/generate", {"text": "y", "rid": "same"}).status_code == 400
        # An earlier test's stream may only now be closing.
        assert "same" not in engine.aborted


def test_abort_all_ends_every_answer(engine: ScriptedEngine, server: Running) -> None:
    endless(engine)
    body = {"text": "x", "rid": "all", "stream": True, "sampling_params": {"n": 3, "max_new_tokens": 400}}
    with server.client.stream("POST", "/generate", json=body) as response:
        lines = response.iter_lines()
        next(lines)
        server.post("/abort_request", {"abort_all": True})
        assert list(lines)[-2] == "data: [DONE]"
    assert wait_until(lambda: engine.running == 0)
    # An answer of the test before may still be on its way out of the shared engine.
    assert {"all_0", "all_1", "all_2"} <= set(engine.aborted)
