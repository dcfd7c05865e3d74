"""``/generate`` in SGLang's shapes, over the real HTTP stack."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from engine_launch.embedded.api import Algorithm
from tests.engine.scripted import EOS, TREE, Script, ScriptedEngine, byte_tokenizer
from tests.engine.serving import Running

RECORDED = Path(__file__).parent.parent / "fixtures" / "server"


def recorded(name: str) -> dict[str, object]:
    data = json.loads((RECORDED / name).read_text())
    assert isinstance(data, dict)
    return data


def meta(body: object) -> dict[str, object]:
    assert isinstance(body, dict)
    info = body["meta_info"]
    assert isinstance(info, dict)
    return info


def test_whole_answer_has_the_recorded_keys_in_their_order(server: Running) -> None:
    body = server.post("/generate", {"text": "hi", "sampling_params": {"temperature": 0}}).json()
    theirs = recorded("generate-dflash.json")
    assert list(body) == list(theirs)
    assert list(meta(body)) == list(meta(theirs))
    assert body["text"] == "hello world"
    assert meta(body)["finish_reason"] == {"type": "stop", "matched": EOS}


def test_plain_decoding_has_no_spec_figures(engine: ScriptedEngine, server: Running) -> None:
    engine.settings = replace(TREE, algorithm=Algorithm.PLAIN)
    body = server.post("/generate", {"text": "hi", "sampling_params": {}}).json()
    assert set(meta(body)) == set(meta(recorded("generate-plain.json")))


def test_figures_belong_together(server: Running) -> None:
    info = meta(server.post("/generate", {"text": "hi", "sampling_params": {"max_new_tokens": 10}}).json())
    assert info["finish_reason"] == {"type": "length", "length": 10}
    assert info["completion_tokens"] == 10
    assert info["spec_verify_ct"] == 3
    assert info["spec_accept_length"] == pytest.approx(10 / 3)
    assert info["spec_correct_drafts_histogram"] == info["spec_accept_histogram"] == [0, 0, 3]
    assert info["spec_accept_rate"] == info["spec_num_correct_drafts"] / info["spec_num_proposed_drafts"]  # type: ignore[operator]
    times = [info[name] for name in ("request_received_ts", "api_server_dispatch_finish_ts", "request_finished_ts")]
    assert times == sorted(times)  # type: ignore[type-var]


def test_stream_is_cumulative_and_tells_spec_figures_last(server: Running) -> None:
    events = server.events("/generate", {"text": "hi", "stream": True, "sampling_params": {"max_new_tokens": 8}})
    assert [event["text"] for event in events] == ["h", "hell", "hello w", "hello wo"]
    assert [event["output_ids"] for event in events] == [list(b"h"), list(b"hell"), list(b"hello w"), list(b"hello wo")]
    first, middle, last = json.loads((RECORDED / "generate-stream.json").read_text())
    assert list(meta(events[0])) == list(meta(first))
    assert list(meta(events[1])) == list(meta(middle))
    assert set(meta(events[-1])) == set(meta(last))
    # As recorded: the last event repeats when the first one left.
    assert meta(last)["response_sent_to_client_ts"] == pytest.approx(meta(first)["response_sent_to_client_ts"], abs=1e-5)
    assert meta(events[-1])["response_sent_to_client_ts"] == meta(events[0])["response_sent_to_client_ts"]


def test_a_step_of_several_tokens_is_one_event(engine: ScriptedEngine, server: Running) -> None:
    engine.script.step = 8
    events = server.events("/generate", {"text": "hi", "stream": True, "sampling_params": {"max_new_tokens": 9}})
    assert len(events) == 2


def test_stream_never_splits_a_character(engine: ScriptedEngine, server: Running) -> None:
    engine.script = Script(answer="äöü€😀".encode(), step=1)
    events = server.events("/generate", {"text": "hi", "stream": True})
    assert all("�" not in str(event["text"]) for event in events)
    assert events[-1]["text"] == "äöü€😀"


def test_stop_string_is_cut_off_and_named(server: Running) -> None:
    body = server.post("/generate", {"text": "hi", "sampling_params": {"stop": ["wor", "zzz"]}}).json()
    assert body["text"] == "hello "
    assert meta(body)["finish_reason"] == {"type": "stop", "matched": "wor"}


def test_prompt_as_token_ids(engine: ScriptedEngine, server: Running) -> None:
    server.post("/generate", {"input_ids": [104, 105]})
    assert engine.submitted[0].input_ids == (104, 105)


def test_copies_and_lists_of_prompts_come_as_a_list(engine: ScriptedEngine, server: Running) -> None:
    copies = server.post("/generate", {"text": "hi", "sampling_params": {"n": 3, "sampling_seed": 5}}).json()
    assert [body["text"] for body in copies] == ["hello world"] * 3
    assert [request.sampling.seed for request in engine.submitted] == [5, 6, 7]
    assert len(server.post("/generate", {"text": ["a", "b"]}).json()) == 2


def test_stream_of_copies_tells_them_apart(server: Running) -> None:
    events = server.events("/generate", {"text": "hi", "stream": True, "sampling_params": {"n": 2, "max_new_tokens": 4}})
    assert {event["index"] for event in events} == {0, 1}
    finals = [event for event in events if meta(event)["finish_reason"]]
    assert sorted(event["index"] for event in finals) == [0, 1]  # type: ignore[type-var]


def test_request_settings_reach_the_engine(engine: ScriptedEngine, server: Running) -> None:
    custom = {"ddtree_budget": 16, "ddtree_topk": 2, "speculative": False, "record_rounds": True}
    server.post("/generate", {"text": "hi", "rid": "mine", "sampling_params": {"custom_params": custom, "top_k": 5}})
    request = engine.submitted[0]
    assert (request.overrides.ddtree_budget, request.overrides.ddtree_topk, request.overrides.speculative) == (16, 2, False)
    assert request.record_rounds
    assert request.rid == "mine"
    assert request.sampling.top_k == 5


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"text": "x", "sampling_params": {"frequency_penalty": 0.5}}, "sampling_params.frequency_penalty"),
        ({"text": "x", "sampling_params": {"repetition_penalty": 1.1}}, "sampling_params.repetition_penalty"),
        ({"text": "x", "sampling_params": {"json_schema": "{}"}}, "sampling_params.json_schema"),
        ({"text": "x", "sampling_params": {"regex": "a+"}}, "sampling_params.regex"),
        ({"text": "x", "sampling_params": {"temprature": 0.5}}, "did you mean temperature?"),
        ({"text": "x", "sampling_params": {"n": 9}}, "sampling_params.n must be at most 8"),
        ({"text": "x", "sampling_params": {"temperature": -1}}, "sampling_params.temperature must be at least 0"),
        ({"text": "x", "sampling_params": {"top_p": 0}}, "sampling_params.top_p must be above 0 and at most 1"),
        ({"text": "x", "sampling_params": {"sampling_seed": 1 << 63}}, "sampling_params.sampling_seed is too large"),
        ({"text": "x", "sampling_params": {"max_new_tokens": 1e300}}, "sampling_params.max_new_tokens is too large"),
        ({"text": "x", "sampling_params": {"stop": ["a"] * 33}}, "sampling_params.stop must be at most 32 strings"),
        ({"text": "x", "sampling_params": {"stop": "a" * 1001}}, "strings of at most 1000 characters"),
        ({"text": "x", "sampling_params": {"top_k": 0}}, "sampling_params.top_k must be at least 1"),
        ({"text": "x", "sampling_params": {"max_new_tokens": "many"}}, "sampling_params.max_new_tokens must be a whole number"),
        ({"text": "x", "sampling_params": {"custom_params": {"ddtree_budget": 0}}}, "custom_params.ddtree_budget"),
        ({"text": "x", "sampling_params": {"custom_params": {"budget": 8}}}, "custom_params.budget"),
        ({"text": "x", "return_logprob": True}, "return_logprob"),
        ({"text": "x", "image_data": ["a.png"]}, "image_data"),
        ({"text": "x", "input_ids": [1]}, "either as text or as input_ids"),
        ({}, "either as text or as input_ids"),
        ({"text": ""}, "text must be a string that is not empty"),
        ({"input_ids": [-1]}, "input_ids must be a list of token ids"),
        ({"text": ["a", "b"], "rid": ["one"]}, "rid needs 2 different entries"),
    ],
)
def test_what_would_be_ignored_or_is_wrong_is_refused_by_name(server: Running, body: object, named: str) -> None:
    response = server.post("/generate", body)
    assert response.status_code == 400
    assert named in response.json()["error"]["message"]


def test_neutral_values_are_accepted(server: Running) -> None:
    params = {"frequency_penalty": 0.0, "repetition_penalty": 1.0, "json_schema": None, "skip_special_tokens": True, "n": 1}
    assert server.post("/generate", {"text": "x", "sampling_params": params}).status_code == 200


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'{"text": "\\ud800"}', b"\xff\xfe", b'{"text":"x","sampling_params":3}'])
def test_broken_body_is_a_400_with_a_reason(server: Running, body: bytes) -> None:
    response = server.client.post("/generate", content=body)
    assert response.status_code == 400
    assert response.json()["error"]["message"]


def test_engine_refusal_is_a_400(engine: ScriptedEngine, server: Running) -> None:
    engine.script.refuse = "the queue is full"
    response = server.post("/generate", {"text": "x", "stream": True})
    assert response.status_code == 400
    assert response.json() == {"error": {"message": "the queue is full"}}


def test_prompt_is_encoded_by_the_models_tokenizer(engine: ScriptedEngine, server: Running) -> None:
    server.post("/generate", {"text": "a<|end|>"})
    assert engine.submitted[0].input_ids == byte_tokenizer().encode("a<|end|>") == (97, EOS)
