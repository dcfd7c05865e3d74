"""The client against a real HTTP server on this machine: parallel requests, refusals, broken streams, cancellation."""

from __future__ import annotations

import asyncio

import pytest

from dflash_console.load.client import PromptClient
from dflash_console.load.records import Chunk
from dflash_console.load.request import Endpoint, PromptRequest
from tests.unit.prompt_server import FULL_TURN, STREAM_HEAD, recorded, refusal, serving


async def test_chunks_arrive_while_the_answer_streams() -> None:
    seen: list[Chunk] = []
    async with serving(recorded("generate-dflash.sse")) as (server, url), PromptClient(url) as client:
        record = await client.send(PromptRequest.of("hello", endpoint=Endpoint.GENERATE), seen.append)
    assert record.ok
    assert record.completion_tokens == 200
    assert len(seen) == record.chunks
    assert seen[0].at < seen[-1].at <= record.total_s
    assert server.bodies[0]["text"] == "hello"
    assert server.bodies[0]["stream"] is True


async def test_a_chat_request_carries_turns_settings_and_asks_for_the_figures() -> None:
    async with serving(recorded("chat-plain.sse")) as (server, url), PromptClient(url) as client:
        record = await client.send(FULL_TURN)
    assert record.completion_tokens == 48
    body = server.bodies[0]
    assert body["messages"] == [{"role": "system", "content": "be short"}, {"role": "user", "content": "hello"}]
    assert body["custom_params"] == {"ddtree_budget": 16}
    assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert (body["max_tokens"], body["temperature"], body["seed"], body["ignore_eos"]) == (9, 0.5, 3, True)


async def test_parallel_requests_are_all_under_way_at_once() -> None:
    async with serving(recorded("chat-last-usage.sse")) as (server, url), PromptClient(url) as client:
        ended: list[int] = []
        records = await client.send_many([PromptRequest.of("hello")] * 24, on_done=lambda record: ended.append(record.request))
    assert server.most_open == 24
    assert [record.request for record in records] == list(range(24))
    assert sorted(ended) == list(range(24))
    assert all(record.completion_tokens == 14 for record in records)


async def test_cancelling_closes_the_connection_so_that_the_engine_frees_the_slot() -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        while True:
            writer.write(b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n')
            await writer.drain()
            await asyncio.sleep(0.01)

    async with serving(endless) as (server, url), PromptClient(url) as client:
        started = asyncio.Event()
        task = asyncio.create_task(client.send(PromptRequest.of("hello"), lambda _: started.set()))
        await asyncio.wait_for(started.wait(), 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.gone.wait(), 30)


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        ("401 Unauthorized", '{"error": {"message": "Unauthorized"}}', "API key"),
        ("404 Not Found", '{"detail": "Not Found"}', "no /v1/chat/completions"),
        ("405 Method Not Allowed", '{"detail": "Method Not Allowed"}', "no /v1/chat/completions (405)"),
        ("501 Not Implemented", "<html>", "no /v1/chat/completions (501)"),
        (
            "400 Bad Request",
            '{"object":"error","message":"Cannot use chat template functions because tokenizer.chat_template is not set"}',
            "--raw",
        ),
        ("400 Bad Request", '{"object":"error","message":"max_tokens must be at least 1"}', "max_tokens must be at least 1"),
        ("503 Service Unavailable", "<html>busy</html>", "<html>busy</html>"),
    ],
)
async def test_a_refusal_is_one_sentence_that_says_why(status: str, body: str, words: str) -> None:
    async with serving(refusal(status, body)) as (_, url), PromptClient(url, api_key="secret-key") as client:
        record = await client.send(PromptRequest.of("hello"))
    assert record.error is not None
    assert words in record.error
    assert "\n" not in record.error
    assert "secret-key" not in record.error


async def test_the_key_is_sent_as_a_bearer_token() -> None:
    async with serving(recorded("chat-last-usage.sse")) as (server, url), PromptClient(url, api_key="secret-key") as client:
        await client.send(PromptRequest.of("hello"))
    assert "authorization: bearer secret-key" in server.heads[0].lower()


async def test_a_byte_order_mark_before_the_first_event_costs_no_event() -> None:
    async def marked(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD.replace(b"; charset=utf-8", b"; charset=latin-1") + b"\xef\xbb")
        await writer.drain()
        writer.write(b'\xbfdata: {"choices":[{"delta":{"content":"caf\xc3\xa9 "}}]}\n\n')
        writer.write(b'data: {"choices":[{"delta":{"content":"au lait"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n')

    async with serving(marked) as (_, url), PromptClient(url) as client:
        record = await client.send(PromptRequest.of("hello"))
    assert (record.error, record.text) == (None, "caf\xe9 au lait")


async def test_a_stream_that_breaks_off_is_an_error_and_keeps_what_came() -> None:
    async def broken(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + b'data: {"choices":[{"delta":{"content":"half an"}}]}\n\n')

    async with serving(broken) as (_, url), PromptClient(url) as client:
        record = await client.send(PromptRequest.of("hello"))
    assert record.text == "half an"
    assert record.error is not None
    assert "broke off" in record.error


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n', None),
        (b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]', None),
        (
            b'event: error\ndata: {"error":{"message":"out of memory"}}\n\n',
            "the server ended the answer with an error: out of memory",
        ),
    ],
)
async def test_a_stream_without_its_last_word_is_whole_when_the_answer_is_and_an_error_when_it_says_one(
    end: bytes, error: str | None
) -> None:
    async def short(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + b'data: {"choices":[{"delta":{"content":"all"}}]}\n\n' + end)

    async with serving(short) as (_, url), PromptClient(url) as client:
        record = await client.send(PromptRequest.of("hello"))
    assert (record.text, record.error) == ("all", error)


async def test_no_server_is_said_with_its_address() -> None:
    async with serving(recorded("chat-plain.sse")) as (_, url):
        pass
    async with PromptClient(url) as client:
        record = await client.send(PromptRequest.of("hello"))
    assert record.error is not None
    assert url in record.error


async def test_an_answer_that_is_no_stream_is_said() -> None:
    async with serving(refusal("200 OK", "<html>hello</html>")) as (_, url), PromptClient(url) as client:
        record = await client.send(PromptRequest.of("hello"))
    assert record.error is not None
    assert "stream" in record.error


async def test_a_server_that_sends_no_first_token_in_time_is_given_up_with_one_sentence() -> None:
    async def frozen(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async with serving(frozen) as (server, url), PromptClient(url, first_token_s=0.3) as client:
        record = await asyncio.wait_for(client.send(PromptRequest.of("hello")), 20)
        await asyncio.wait_for(server.gone.wait(), 20)
    assert record.error is not None
    assert record.error.startswith("no token came within 0.3 s: ")
    assert "--first-token-timeout" in record.error


async def test_the_time_for_the_first_token_does_not_bound_the_answer() -> None:
    first = asyncio.Event()
    bound = 1.0

    async def slow(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        for _ in range(6):
            writer.write(b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n')
            await writer.drain()
            # Counted from the token that the client has, so that the rest is late however soon the first one was.
            await first.wait()
            await asyncio.sleep(bound / 4)
        writer.write(b"data: [DONE]\n\n")

    async with serving(slow) as (_, url), PromptClient(url, first_token_s=bound) as client:
        record = await asyncio.wait_for(client.send(PromptRequest.of("hello"), lambda _: first.set()), 20)
    assert (record.error, record.text) == (None, "xxxxxx")
