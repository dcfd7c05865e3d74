"""The real engine behind the real server, started as a user starts it. One server for all tests of this module.

The drafter is untrained: what is tested here must hold whatever it drafts.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from engine_launch.embedded.model_files import default_model_path
from tests.engine.checkpoints import write_untrained_drafter
from tests.engine.scripted import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not default_model_path().is_file(), reason="the model is not here: ddtree-launch model get"),
]

PROMPT = "<|im_start|>user\nWrite a Python function that merges two sorted lists.<|im_end|>\n<|im_start|>assistant\n"
GREEDY = {"temperature": 0, "max_new_tokens": 10}
RECORDED = Path(__file__).parent.parent / "fixtures" / "server" / "generate-plain.json"
FLAGS = [
    *("--speculative-algorithm", "DDTREE", "--speculative-ddtree-budget", "8", "--speculative-ddtree-topk", "4"),
    *("--speculative-draft-window-size", "512", "--enable-metrics", "--max-running-requests", "2", "--dtype", "float32"),
    *("--decode-log-interval", "5"),
]


class RealServer:
    def __init__(self, client: httpx.Client, log: Path) -> None:
        self.client = client
        self.log = log

    def generate(self, **params: object) -> dict[str, object]:
        response = self.client.post("/generate", json={"text": PROMPT, "sampling_params": {**GREEDY, **params}})
        assert response.status_code == 200, response.text
        body = response.json()
        assert isinstance(body, dict)
        return body

    def state(self) -> dict[str, object]:
        state = self.client.get("/server_info").json()["internal_states"][0]
        assert isinstance(state, dict)
        return state

    def set(self, **values: float) -> list[bool]:
        answer = self.client.post("/set_internal_state", json={"server_args": values}).json()
        assert isinstance(answer, list)
        return answer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    folder = tmp_path_factory.mktemp("server")
    log, drafter = folder / "server.log", write_untrained_drafter(folder / "drafter")
    with log.open("w") as out:
        command = [sys.executable, "-m", "engine_launch", "serve", "--engine", "embedded", "--port", "0", *FLAGS]
        command += ["--speculative-draft-model-path", str(drafter)]
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        said = ("fired up", "Uvicorn running on")
        assert wait_until(lambda: all(word in log.read_text() for word in said) or process.poll() is not None, 150), (
            log.read_text()
        )
        assert process.poll() is None, log.read_text()
        (line,) = [line for line in log.read_text().splitlines() if "Uvicorn running on" in line]
        url = line.split(" on ")[1].split(" ")[0]
        with httpx.Client(base_url=url, timeout=60) as client:
            yield RealServer(client, log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert "Traceback" not in log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_start_is_confirmed_in_the_log(server: RealServer) -> None:
    text = server.log.read_text()
    assert "Initialized DDTREE draft runner. attention_backend=torch_native, model=DFlashDraftModel, block_size=8, " in text
    assert "tree_budget=8, tree_topk=4, layers_window=512, draft_window_size=512, compact_cache=True" in text
    assert text.count("Load weight begin.") == text.count("Load weight end.") == text.count("KV Cache is allocated.") == 2
    order = ["server_args=", "Load weight end.", "Initialized DDTREE", "DFLASH draft runner ready", "max_total_num_tokens="]
    places = [text.index(word) for word in [*order, "The server is fired up"]]
    assert places == sorted(places)


def test_tree_says_what_sglang_says_for_the_same_model(server: RealServer) -> None:
    body = server.generate()
    recorded = json.loads(RECORDED.read_text())
    assert body["output_ids"][:8] == recorded["output_ids"]  # type: ignore[index]
    info = body["meta_info"]
    assert isinstance(info, dict)
    assert info["prompt_tokens"] == recorded["meta_info"]["prompt_tokens"]
    assert info["completion_tokens"] == 10
    assert info["spec_verify_ct"] == sum(info["spec_correct_drafts_histogram"]) < 10


def test_hot_changes_leave_greedy_answers_alone_and_are_told(server: RealServer) -> None:
    before = server.generate()["output_ids"]
    assert server.set(speculative_ddtree_budget=16, speculative_ddtree_topk=2, speculative_draft_window_size=64) == [True]
    state = server.state()
    assert (state["speculative_ddtree_budget"], state["speculative_ddtree_topk"]) == (16, 2)
    assert state["speculative_draft_window_size"] == 64
    assert server.generate()["output_ids"] == before
    assert server.set(speculation=0) == [True]
    plain = server.generate()
    assert plain["output_ids"] == before
    assert "spec_verify_ct" not in plain["meta_info"]  # type: ignore[operator]
    assert server.set(speculation=1, speculative_ddtree_budget=8, speculative_ddtree_topk=4) == [True]
    assert server.set(speculative_ddtree_budget=-1) == [False]
    assert "Hot change applied. speculative_ddtree_budget: 8 -> 16 (from /set_internal_state)" in server.log.read_text()
    assert "Hot change refused. speculative_ddtree_budget" in server.log.read_text()


def test_request_settings_count_for_that_request(server: RealServer) -> None:
    info = server.generate(custom_params={"ddtree_budget": 1})["meta_info"]
    assert isinstance(info, dict)
    assert info["spec_num_proposed_drafts"] == info["spec_verify_ct"]
    assert "spec_verify_ct" not in server.generate(custom_params={"speculative": False})["meta_info"]  # type: ignore[operator]


def test_rounds_can_be_read_after_a_request_that_recorded_them(server: RealServer) -> None:
    server.generate(custom_params={"record_rounds": True})
    rounds = server.client.get("/ddtree/rounds?limit=3").json()["rounds"]
    assert len(rounds) == 3
    for record in rounds:
        assert len(record["tokens"]) == len(record["parents"]) == len(record["token_texts"]) <= 8
        assert record["path"][0] == 0


def test_more_requests_than_slots_wait_and_all_are_answered(server: RealServer) -> None:
    answers: list[object] = []
    threads = [threading.Thread(target=lambda: answers.append(server.generate()["output_ids"])) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert wait_until(lambda: server.client.get("/v1/loads").json()["loads"][0]["num_waiting_reqs"] > 0, 60)
    for thread in threads:
        thread.join()
    assert len(answers) == 4
    assert all(answer == answers[0] for answer in answers)


def test_client_that_leaves_frees_its_slot(server: RealServer) -> None:
    body = {"text": PROMPT, "stream": True, "sampling_params": {"max_new_tokens": 2000, "ignore_eos": True}}
    with server.client.stream("POST", "/generate", json=body) as response:
        next(response.iter_lines())
    assert wait_until(lambda: server.client.get("/v1/loads").json()["loads"][0]["num_running_reqs"] == 0, 60)
    assert server.state()["draft_kv_bytes"] == 0


def test_chat_stream_adds_up(server: RealServer) -> None:
    body = {"messages": [{"role": "user", "content": "Say hello"}], "max_tokens": 8, "temperature": 0}
    whole = server.client.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]
    with server.client.stream("POST", "/v1/chat/completions", json={**body, "stream": True}) as response:
        events = [json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: {")]
    assert "".join(event["choices"][0]["delta"].get("content") or "" for event in events) == whole


def test_a_prompt_that_was_there_before_is_read_from_the_cache_and_that_is_said(server: RealServer) -> None:
    assert server.client.post("/flush_cache").status_code == 200
    assert server.state()["prefix_cache"] == {"entries": 0, "bytes": 0}
    cold, warm = server.generate(), server.generate()
    assert warm["output_ids"] == cold["output_ids"]
    infos = [answer["meta_info"] for answer in (cold, warm)]
    assert all(isinstance(info, dict) for info in infos)
    prompt = infos[0]["prompt_tokens"]  # type: ignore[index]
    assert [info["cached_tokens"] for info in infos] == [0, prompt - 1]  # type: ignore[index]
    assert f"Prefill batch, #new-seq: 1, #new-token: 1, #cached-token: {prompt - 1}," in server.log.read_text()
    body = {"messages": [{"role": "user", "content": "Count to three."}], "max_tokens": 4, "temperature": 0}
    usage = [server.client.post("/v1/chat/completions", json=body).json()["usage"] for _ in range(2)]
    assert usage[1]["prompt_tokens_details"] == {"cached_tokens": usage[1]["prompt_tokens"] - 1}
    assert "sglang:cached_tokens_total" in server.client.get("/metrics").text
