"""How a user's turn reaches a server, by what the server takes: one that answers as SGLang 0.5.17 does, and poorer ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from dflash_console.load import client as client_module
from dflash_console.load.client import PromptClient
from dflash_console.load.records import CommitSource
from dflash_console.load.request import Endpoint, Extra, Message, PromptRequest, Role
from dflash_console.load.template import ChatTemplate
from tests.unit.prompt_server import FULL_TURN, Answer, answered, broken_off, fixture, recorded, refusal, serving

TOKENS = [1, 4093, 198, 28120, 2, 198, 1, 520]
NOT_FOUND = refusal("404 Not Found", '{"detail": "Not Found"}')
TURN = PromptRequest.of("hello")
Choose = Callable[[str, dict[str, Any]], Answer]


def sglang(path: str, body: dict[str, Any]) -> Answer:
    """What stock SGLang 0.5.17 answers (``serving_chat.py``, ``serving_tokenize.py``, ``http_server.py``)."""
    if path == "/tokenize":
        given = ("prompt" in body) + ("messages" in body)
        return answered({"tokens": TOKENS, "count": len(TOKENS), "max_model_len": 8192}) if given == 1 else _bad("Exactly one")
    if path == "/v1/chat/completions":
        if body.get("stream") and body.get("return_meta_info"):
            return fixture("chat-stream-meta-info-error.json")
        return recorded("chat-dflash.sse")
    return recorded("generate-dflash.sse") if ("text" in body) != ("input_ids" in body) else _bad("text or input_ids")


def refusing(field: str, otherwise: Choose) -> Choose:
    """A server whose chat endpoint takes no ``field``."""

    def choose(path: str, body: dict[str, Any]) -> Answer:
        if path == "/v1/chat/completions" and field in json.dumps(body):
            return _bad(f"[{{'type': 'extra_forbidden', 'loc': ('body', '{field}'), 'msg': 'Extra inputs are not permitted'}}]")
        return otherwise(path, body)

    return choose


def lacking(*paths: str) -> Choose:
    return lambda path, body: NOT_FOUND if path in paths else sglang(path, body)


def _bad(message: str) -> Answer:
    return refusal("400 Bad Request", json.dumps({"object": "error", "message": message, "type": "BadRequest", "code": 400}))


async def test_a_turn_is_answered_by_generate_from_the_tokens_of_the_servers_own_template() -> None:
    async with serving(choose=sglang) as (server, url), PromptClient(url) as client:
        record = await client.send(FULL_TURN)
    assert record.ok
    assert (record.endpoint, record.note) == ("/generate", "")
    assert record.commit_source is CommitSource.HISTOGRAM
    assert record.token_ids
    assert server.asked == ["/tokenize", "/generate"]
    assert server.bodies == [
        {
            "input_ids": TOKENS,
            "stream": True,
            "sampling_params": {
                "max_new_tokens": 9,
                "temperature": 0.5,
                "top_p": 1.0,
                "sampling_seed": 3,
                "ignore_eos": True,
                "custom_params": {"ddtree_budget": 16},
            },
        }
    ]


async def test_copies_of_a_prompt_ask_for_its_tokens_once() -> None:
    async with serving(choose=sglang) as (server, url), PromptClient(url) as client:
        records = await client.send_many([TURN] * 8)
    assert all(record.commit_length is not None for record in records)
    assert (server.asked.count("/tokenize"), server.asked.count("/generate")) == (1, 8)


async def test_the_chat_endpoint_is_asked_where_the_user_wants_it_and_the_record_says_what_it_lacks() -> None:
    request = PromptRequest((Message(Role.USER, "hello"),), openai=True)
    async with serving(choose=sglang) as (server, url), PromptClient(url) as client:
        record = await client.send(request)
    assert record.ok
    assert server.asked == ["/v1/chat/completions"]
    assert (record.endpoint, record.commit_length, record.commit_source) == (Endpoint.CHAT.value, None, CommitSource.NONE)
    assert "commit length is not reported: /v1/chat/completions streams no figures of verifies" in record.note


async def test_a_server_that_gives_no_tokens_is_asked_by_chat_from_then_on() -> None:
    refused: set[Extra] = set()
    async with serving(choose=lacking("/tokenize")) as (server, url):
        for _ in range(2):
            async with PromptClient(url, refused=refused) as client:
                record = await client.send(TURN)
            assert record.ok
            assert "commit length is not reported" in record.note
            assert "/tokenize" in record.note
    assert server.asked == ["/tokenize", *["/v1/chat/completions"] * 3], "the first of these for the tokens"
    assert refused == {Extra.TOKENS}


async def test_a_server_with_tokens_but_without_generate_is_asked_by_chat() -> None:
    async with serving(choose=lacking("/generate")) as (server, url), PromptClient(url) as client:
        record = await client.send(TURN)
    assert record.ok
    assert server.asked == ["/tokenize", "/generate", "/v1/chat/completions"]


def breaking(path: str, body: dict[str, Any]) -> Answer:
    """SGLang 0.5.17 with a model whose tokenizer names no greatest length: its own JSON writer breaks on ``/tokenize``."""
    return with_tokenize(broken_off("500 Internal Server Error", "Internal Server Error"))(path, body)


def with_tokenize(answer: Answer) -> Choose:
    """A server that answers ``/tokenize`` so, and gives a prompt's tokens with a chat answer."""

    def choose(path: str, body: dict[str, Any]) -> Answer:
        if path == "/tokenize":
            return answer
        if path == "/v1/chat/completions" and body.get("return_prompt_token_ids") and not body.get("stream"):
            return answered({"choices": [{"index": 0, "message": {"content": "a"}, "prompt_token_ids": TOKENS}]})
        return sglang(path, body)

    return choose


async def closing(writer: asyncio.StreamWriter) -> None:
    """Takes the request and closes the connection without a word."""


async def half(writer: asyncio.StreamWriter) -> None:
    """Closes it in the middle of the answer."""
    writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{"tokens": [1, 2')


async def silent(writer: asyncio.StreamWriter) -> None:
    """Never answers."""
    await asyncio.Event().wait()


FAILURES = {
    "closes": closing,
    "breaks off": half,
    "hangs": silent,
    "no HTTP": refusal("no status", ""),
    "500": refusal("500 Internal Server Error", ""),
    "502": refusal("502 Bad Gateway", "<html>"),
    "503": refusal("503 Service Unavailable", ""),
    "404": NOT_FOUND,
    "no tokens": answered({"tokens": [], "count": 0}),
    "a web page": refusal("200 OK", "<html>hello</html>"),
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_however_tokenize_fails_the_tokens_come_by_chat(failure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "TOKENIZE_TIMEOUT_S", 0.3)
    refused: set[Extra] = set()
    async with serving(choose=with_tokenize(FAILURES[failure])) as (server, url), PromptClient(url, refused=refused) as client:
        record = await client.send(TURN)
    assert record.error is None
    assert (record.endpoint, record.commit_source) == ("/generate", CommitSource.HISTOGRAM)
    assert server.asked == ["/tokenize", "/v1/chat/completions", "/generate"]
    assert not refused


@pytest.mark.parametrize("status", ["400 Bad Request", "401 Unauthorized", "413 Payload Too Large", "422 Unprocessable Entity"])
async def test_a_prompt_that_tokenize_refuses_is_not_sent_for_its_tokens_once_more(status: str) -> None:
    async with serving(choose=with_tokenize(refusal(status, ""))) as (server, url), PromptClient(url) as client:
        record = await client.send(TURN)
    assert record.ok
    assert server.asked == ["/tokenize", "/v1/chat/completions"]
    assert not server.questions


@pytest.mark.parametrize(
    ("failure", "by_chat"),
    [("closes", "no tokens"), ("hangs", "no tokens"), ("503", "no tokens"), ("500", "503"), ("500", "closes")],
)
async def test_what_fails_in_passing_is_asked_for_again_the_next_time(
    failure: str, by_chat: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "TOKENIZE_TIMEOUT_S", 0.3)
    refused: set[Extra] = set()

    def choose(path: str, body: dict[str, Any]) -> Answer:
        return FAILURES[by_chat] if body.get("return_prompt_token_ids") else with_tokenize(FAILURES[failure])(path, body)

    async with serving(choose=choose) as (_, url), PromptClient(url, refused=refused) as client:
        record = await client.send(TURN)
    assert record.ok, "by the chat endpoint itself"
    assert record.endpoint == "/v1/chat/completions"
    assert not refused


async def test_a_server_that_is_gone_is_asked_once_and_said_to_be_gone() -> None:
    async with serving() as (_, url):
        pass
    async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
        with pytest.raises(httpx.ConnectError):
            await ChatTemplate(http).tokens(TURN.messages)
    async with PromptClient(url) as client:
        record = await client.send(TURN)
    assert record.error is not None
    assert record.error.startswith("no server answers at ")


async def test_where_tokenize_breaks_a_chat_answer_of_one_token_brings_the_prompts_tokens() -> None:
    async with serving(choose=breaking) as (server, url), PromptClient(url) as client:
        records = await client.send_many([TURN] * 8)
    assert all(record.ok and record.commit_length is not None for record in records)
    assert server.asked[:2] == ["/tokenize", "/v1/chat/completions"]
    assert server.asked[2:] == ["/generate"] * 8
    (asked,) = server.questions
    assert (asked["max_tokens"], asked["repetition_penalty"]) == (1, 1.0)
    assert asked["cache_salt"], "the prompt itself must find nothing of it in the prefix cache"
    assert all(body["input_ids"] == TOKENS and "cache_salt" not in body for body in server.bodies)


@pytest.mark.parametrize("choices", [[], [{"index": 0}], [{"prompt_token_ids": [1, "2"]}], "no list"])
async def test_where_neither_brings_tokens_the_turn_goes_to_the_chat_endpoint(choices: object) -> None:
    def choose(path: str, body: dict[str, Any]) -> Answer:
        found = breaking(path, body)
        return answered({"choices": choices}) if body.get("return_prompt_token_ids") else found

    async with serving(choose=choose) as (server, url), PromptClient(url) as client:
        record = await client.send(TURN)
    assert record.ok
    assert "commit length is not reported" in record.note
    assert server.asked == ["/tokenize", "/v1/chat/completions", "/v1/chat/completions"]


@pytest.mark.parametrize(
    ("field", "lacks"), [("continuous_usage_stats", "the tokens of each chunk"), ("stream_options", "token counts")]
)
async def test_a_refused_field_of_the_consoles_own_is_left_out_once_and_remembered(field: str, lacks: str) -> None:
    refused: set[Extra] = set()
    async with serving(choose=refusing(field, lacking("/tokenize"))) as (server, url):
        for _ in range(2):
            async with PromptClient(url, refused=refused) as client:
                record = await client.send(TURN)
            assert record.ok
            assert f"{lacks} are not reported: this server refuses {field}" in record.note
    sent = [field in json.dumps(body) for body in server.bodies]
    assert sent[0]
    assert not any(sent[-2:])
    assert Extra(field) in refused


@pytest.mark.parametrize("field", ["custom_params", "ignore_eos"])
async def test_what_the_user_asked_for_is_never_left_out(field: str) -> None:
    request = PromptRequest((Message(Role.USER, "hello"),), ignore_eos=True, custom_params={"ddtree_budget": 4})
    async with serving(choose=refusing(field, lacking("/tokenize"))) as (server, url), PromptClient(url) as client:
        record = await client.send(request)
    assert record.error is not None
    assert field in record.error
    assert len(server.bodies) == 1


async def test_a_refusal_by_generate_is_the_answer_and_not_a_reason_to_chat() -> None:
    def choose(path: str, body: dict[str, Any]) -> Answer:
        return _bad("custom_params.ddtree_budget must be at least 1") if path == "/generate" else sglang(path, body)

    async with serving(choose=choose) as (server, url), PromptClient(url) as client:
        record = await client.send(TURN)
    assert record.error == "the server refused the request (400): custom_params.ddtree_budget must be at least 1"
    assert server.asked == ["/tokenize", "/generate"]


async def test_a_second_refusal_is_not_laid_on_what_was_left_out() -> None:
    refused: set[Extra] = set()

    def choose(path: str, body: dict[str, Any]) -> Answer:
        # Some validators quote the whole body, whatever field they complain of.
        return _bad(f"max_tokens is too large: {json.dumps(body)}") if path == "/v1/chat/completions" else NOT_FOUND

    async with serving(choose=choose) as (_, url), PromptClient(url, refused=refused) as client:
        record = await client.send(TURN)
    assert record.error is not None
    assert "max_tokens is too large" in record.error
    assert not refused
