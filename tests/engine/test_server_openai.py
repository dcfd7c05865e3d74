"""``/v1/chat/completions`` and ``/v1/completions`` in the shapes recorded from SGLang."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.engine.scripted import EOS, ScriptedEngine, byte_tokenizer
from tests.engine.serving import Running, serving

FIXTURES = Path(__file__).parent.parent / "fixtures"
CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, "temperature": 0}


def shape(value: object) -> object:
    """Keys and their order, without the values."""
    if isinstance(value, Mapping):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value]
    return None


def recorded_chunks(name: str) -> list[object]:
    lines = (FIXTURES / "streams" / name).read_text().splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]


def choice(chunk: Mapping[str, object]) -> dict[str, object]:
    choices = chunk["choices"]
    assert isinstance(choices, list)
    (one,) = choices
    assert isinstance(one, dict)
    return one


def contents(chunks: list[dict[str, object]]) -> list[str]:
    deltas = [choice(chunk)["delta"] for chunk in chunks if chunk["choices"]]
    return [delta["content"] for delta in deltas if isinstance(delta, dict) and delta.get("content")]


def test_chat_stream_has_the_recorded_shape(server: Running) -> None:
    ours = server.events("/v1/chat/completions", {**CHAT, "stream": True, "stream_options": {"include_usage": True}})
    theirs = recorded_chunks("chat-dflash.sse")
    assert [json.dumps(shape(chunk)) for chunk in (ours[0], ours[1], ours[-2], ours[-1])] == [
        json.dumps(shape(chunk)) for chunk in (theirs[0], theirs[1], theirs[-2], theirs[-1])
    ]
    assert contents(ours) == ["h", "ell", "o w", "o"]
    assert choice(ours[-2])["finish_reason"] == "length"
    assert ours[-1]["usage"] == {
        "prompt_tokens": len("<user>hi<assistant>"),
        "total_tokens": len("<user>hi<assistant>") + 8,
        "completion_tokens": 8,
        "prompt_tokens_details": None,
        "reasoning_tokens": 0,
    }


def test_stop_token_is_named_and_not_shown(server: Running) -> None:
    chunks = server.events("/v1/chat/completions", {**CHAT, "max_tokens": 50, "stream": True})
    assert "".join(contents(chunks)) == "hello world"
    assert (choice(chunks[-1])["finish_reason"], choice(chunks[-1])["matched_stop"]) == ("stop", EOS)


def test_usage_comes_only_when_asked_for(server: Running) -> None:
    chunks = server.events("/v1/chat/completions", {**CHAT, "stream": True})
    assert all("usage" not in chunk for chunk in chunks)


def test_continuous_usage_of_chat_counts_with_each_text_and_at_the_end(engine: ScriptedEngine, server: Running) -> None:
    engine.script.answer, engine.script.step = "éa".encode(), 1
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = server.events("/v1/chat/completions", {**CHAT, "max_tokens": 3, "stream": True, "stream_options": options})
    counts = [chunk["usage"]["completion_tokens"] if "usage" in chunk else None for chunk in chunks]  # type: ignore[index]
    # The role, both bytes of a character, a letter, the end, and the whole.
    assert counts == [None, 2, 3, None, 3]
    assert contents(chunks) == ["é", "a"]


def test_flag_makes_usage_the_default() -> None:
    with serving(ScriptedEngine(), "--stream-response-default-include-usage") as server:
        assert server.events("/v1/chat/completions", {**CHAT, "stream": True})[-1]["choices"] == []


def test_whole_chat_answer(server: Running) -> None:
    body = server.post("/v1/chat/completions", {**CHAT, "model": "whatever"}).json()
    assert body["object"] == "chat.completion"
    assert body["model"] == "whatever"
    (one,) = body["choices"]
    assert one["message"] == {"role": "assistant", "content": "hello wo", "reasoning_content": None, "tool_calls": None}
    assert (one["finish_reason"], one["matched_stop"]) == ("length", None)
    assert body["usage"]["completion_tokens"] == 8


def test_copies_share_one_prompt_in_usage(server: Running) -> None:
    body = server.post("/v1/chat/completions", {**CHAT, "n": 3}).json()
    assert [one["index"] for one in body["choices"]] == [0, 1, 2]
    assert body["usage"]["prompt_tokens"] == len("<user>hi<assistant>")
    assert body["usage"]["completion_tokens"] == 24


def test_messages_go_through_the_models_template(engine: ScriptedEngine, server: Running) -> None:
    messages = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    ]
    server.post("/v1/chat/completions", {"messages": messages})
    assert bytes(engine.submitted[0].input_ids) == b"<system>be brief<user>ab<assistant>"


def test_chat_without_a_limit_may_fill_the_context(engine: ScriptedEngine, server: Running) -> None:
    server.post("/v1/chat/completions", {"messages": CHAT["messages"]})
    request = engine.submitted[0]
    assert len(request.input_ids) + request.sampling.max_new_tokens == engine.context_length


def test_newer_limit_wins_over_the_older_one(engine: ScriptedEngine, server: Running) -> None:
    server.post("/v1/chat/completions", {**CHAT, "max_completion_tokens": 3})
    assert engine.submitted[0].sampling.max_new_tokens == 3


def test_meta_info_comes_with_whole_answers_and_is_refused_for_streams_in_sglangs_words(server: Running) -> None:
    body = server.post("/v1/chat/completions", {**CHAT, "return_meta_info": True}).json()
    assert body["choices"][0]["meta_info"]["spec_verify_ct"] == 3
    refused = server.post("/v1/chat/completions", {**CHAT, "stream": True, "return_meta_info": True})
    assert refused.status_code == 400
    assert refused.json() == json.loads((FIXTURES / "server" / "chat-stream-meta-info-error.json").read_text())


@pytest.mark.parametrize("path", ["/tokenize", "/v1/tokenize"])
def test_tokens_of_a_conversation_are_those_that_chat_has_the_model_read(
    engine: ScriptedEngine, server: Running, path: str
) -> None:
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    answer = server.post(path, {"messages": messages}).json()
    server.post("/v1/chat/completions", {"messages": messages})
    assert answer["tokens"] == list(engine.submitted[0].input_ids)
    assert (answer["count"], answer["max_model_len"]) == (len(answer["tokens"]), engine.context_length)


def test_tokens_of_texts(server: Running) -> None:
    assert server.post("/tokenize", {"prompt": "ab"}).json()["tokens"] == list(b"ab")
    several = server.post("/tokenize", {"prompt": ["ab", "c"]}).json()
    assert (several["tokens"], several["count"]) == ([list(b"ab"), list(b"c")], [2, 1])


@pytest.mark.parametrize("body", [{}, {"prompt": "a", "messages": CHAT["messages"]}, {"prompt": "a", "tools": [{}]}])
def test_tokens_of_nothing_of_both_or_with_tools_are_refused(server: Running, body: dict[str, object]) -> None:
    assert server.post("/tokenize", body).status_code == 400


def test_completions_have_their_own_shape_and_default_limit(engine: ScriptedEngine, server: Running) -> None:
    body = server.post("/v1/completions", {"prompt": "hi"}).json()
    assert engine.submitted[0].sampling.max_new_tokens == 16
    assert body["object"] == "text_completion"
    assert list(body["choices"][0]) == ["index", "text", "logprobs", "finish_reason", "matched_stop"]
    chunks = server.events("/v1/completions", {"prompt": "hi", "stream": True, "max_tokens": 4})
    assert "".join(str(choice(chunk)["text"]) for chunk in chunks) == "hell"


def test_completions_take_several_prompts_and_token_ids(engine: ScriptedEngine, server: Running) -> None:
    body = server.post("/v1/completions", {"prompt": ["ab", "c"], "n": 2, "max_tokens": 1}).json()
    assert [bytes(request.input_ids) for request in engine.submitted] == [b"ab", b"ab", b"c", b"c"]
    assert body["usage"]["prompt_tokens"] == 3
    assert [one["index"] for one in body["choices"]] == [0, 1, 2, 3]
    server.post("/v1/completions", {"prompt": [104, 105]})
    assert engine.submitted[-1].input_ids == (104, 105)


@pytest.mark.parametrize(
    ("extra", "param"),
    [
        ({"presence_penalty": 1}, "presence_penalty"),
        ({"logprobs": True}, "logprobs"),
        ({"top_logprobs": 5}, "top_logprobs"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"logit_bias": {"5": 10}}, "logit_bias"),
        ({"n": 9}, "n"),
        ({"temperatur": 1}, "temperatur"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].type"),
        ({"stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation"),
        ({"seed": -1}, "seed"),
        ({"temperature": 1e400}, "temperature"),
    ],
)
def test_refusal_names_the_parameter_in_openais_form(server: Running, extra: dict[str, object], param: str) -> None:
    # json= refuses infinities; clients do not always.
    response = server.client.post("/v1/chat/completions", content=json.dumps({**CHAT, **extra}))
    body = response.json()
    assert response.status_code == body["code"] == 400
    assert list(body) == list(json.loads((FIXTURES / "server" / "chat-error.json").read_text()))
    assert (body["object"], body["type"], body["param"]) == ("error", "BadRequest", param)
    assert param.split(".")[-1] in body["message"]


def test_harmless_fields_are_accepted(server: Running) -> None:
    extra = {
        "user": "u",
        "metadata": {"a": "b"},
        "store": False,
        "tools": [],
        "response_format": {"type": "text"},
        "logprobs": False,
    }
    assert server.post("/v1/chat/completions", {**CHAT, **extra}).status_code == 200


def test_model_without_a_template_says_so() -> None:
    with serving(ScriptedEngine(), tokenizer=byte_tokenizer(chat_template=None)) as server:
        response = server.post("/v1/chat/completions", CHAT)
    assert response.status_code == 400
    assert "no chat template" in response.json()["message"]
