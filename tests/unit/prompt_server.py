"""A real HTTP server on this machine that answers prompts as a test wants: one answer, or each path its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from dflash_console.load.request import Message, PromptRequest, Role

FIXTURES = Path(__file__).parent.parent / "fixtures"
STREAMS = FIXTURES / "streams"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nConnection: close\r\n\r\n"
FULL_TURN = PromptRequest(
    (Message(Role.SYSTEM, "be short"), Message(Role.USER, "hello")),
    max_tokens=9,
    temperature=0.5,
    seed=3,
    ignore_eos=True,
    custom_params={"ddtree_budget": 16},
)
"""A user's turn with settings of its own: each has to be in the body that is sent, in the endpoint's words."""


Body = dict[str, Any]
Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


class Server:
    """A real socket that answers every prompt with what ``answer`` writes, and notes what it was sent.

    It gives the tokens of no prompt, neither by ``/tokenize`` nor by chat, unless ``choose`` says what answers a path's body.
    """

    def __init__(self, answer: Answer, choose: Callable[[str, Body], Answer] | None = None) -> None:
        self._answer = answer
        self._choose = choose
        self.heads: list[str] = []
        self.bodies: list[Body] = []
        """Of prompts."""
        self.questions: list[Body] = []
        """Of chat requests that are there for the prompt's tokens only."""
        self.asked: list[str] = []
        """Every path, in the order of the requests."""
        self.open = 0
        self.most_open = 0
        self.gone = asyncio.Event()
        """Set when a client leaves before its answer ended."""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next(int(line.split(":")[1]) for line in head.splitlines() if line.lower().startswith("content-length"))
            path, body = head.split()[1], json.loads(await reader.readexactly(length))
            self.asked.append(path)
            if _for_tokens(body):
                self.questions.append(body)
            elif path != "/tokenize":
                self.heads.append(head)
                self.bodies.append(body)
            left = asyncio.create_task(reader.read())
            answered = asyncio.create_task(self._reply(path, body, writer))
            done, _ = await asyncio.wait({left, answered}, return_when=asyncio.FIRST_COMPLETED)
            if left in done and answered not in done:
                self.gone.set()
            for task in (left, answered):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                    await task
        finally:
            self.open -= 1
            writer.close()

    async def _reply(self, path: str, body: Body, writer: asyncio.StreamWriter) -> None:
        if self._choose is not None:
            answer = self._choose(path, body)
        elif path == "/tokenize" or _for_tokens(body):
            answer = refusal("404 Not Found", '{"detail": "Not Found"}')
        else:
            answer = self._answer
        await answer(writer)
        await writer.drain()


def _for_tokens(body: Body) -> bool:
    return bool(body.get("return_prompt_token_ids"))


@contextlib.asynccontextmanager
async def serving(
    answer: Answer | None = None, choose: Callable[[str, Body], Answer] | None = None
) -> AsyncIterator[tuple[Server, str]]:
    server = Server(answer or refusal("404 Not Found", ""), choose)
    listener = await asyncio.start_server(server.handle, "127.0.0.1", 0)
    try:
        yield server, f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        listener.close()


def recorded(name: str) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        for event in (STREAMS / name).read_bytes().split(b"\n\n"):
            writer.write(event + b"\n\n")
            await writer.drain()
            await asyncio.sleep(0.005)

    return answer


def refusal(status: str, body: str) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        data = body.encode()
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data)

    return answer


def broken_off(status: str, body: str) -> Answer:
    """As uvicorn does where a handler broke: it does not say that it closes the connection, and closes it."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        data = body.encode()
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)

    return answer


def answered(body: object) -> Answer:
    """A JSON answer."""
    return refusal("200 OK", json.dumps(body))


def fixture(name: str, status: str = "400 Bad Request") -> Answer:
    """An error as the recorded server worded it."""
    return refusal(status, (FIXTURES / "server" / name).read_text())
