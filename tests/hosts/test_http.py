"""The engine's HTTP API as different releases speak it: renamed endpoints, redirects, missing metrics, keys, broken answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from dflash_console.hosts.address import engine_address
from dflash_console.hosts.http import EngineHttp, EngineHttpError, HttpFailure
from tests.ports import free_port

Answer = tuple[int, str, bytes]
Routes = Callable[[str, dict[str, str]], Answer]


@dataclass
class Server:
    port: int
    seen: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def serving(routes: Routes) -> AsyncIterator[Server]:
    """A server that answers each request line as ``routes`` says and notes it."""
    server = Server(free_port())

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        await reader.readexactly(int(headers.get("content-length", "0")))
        server.seen.append(f"{method} {path}")
        status, extra, body = routes(path, headers)
        writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\nconnection: close\r\n{extra}\r\n".encode() + body)
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(answer, "127.0.0.1", server.port)
    async with listener:
        yield server


@asynccontextmanager
async def client(url: str, key: str | None = None, timeout: float = 5.0) -> AsyncIterator[EngineHttp]:
    http = EngineHttp(url, api_key=key, timeout=timeout)
    try:
        yield http
    finally:
        await http.close()


async def failure(http: EngineHttp, what: str) -> EngineHttpError:
    with pytest.raises(EngineHttpError) as caught:
        await getattr(http, what)()
    return caught.value


ABSENT = pytest.mark.parametrize("absent", [404, 405, 501])
"""As servers and proxies say that they do not have an endpoint."""


@ABSENT
async def test_an_old_server_is_asked_under_the_old_name_and_that_is_remembered(absent: int) -> None:
    def routes(path: str, headers: dict[str, str]) -> Answer:
        return (200, "", b"{}") if path == "/get_server_info" else (absent, "", b'{"detail":"Not Found"}')

    async with serving(routes) as server, client(server.url) as http:
        assert await http.server_info() == b"{}"
        assert await http.server_info() == b"{}"
        assert server.seen == ["GET /server_info", "GET /get_server_info", "GET /get_server_info"]


async def test_a_newer_server_in_its_place_is_found_again() -> None:
    names = ["/get_server_info"]

    def routes(path: str, headers: dict[str, str]) -> Answer:
        return (200, "", b"{}") if path in names else (404, "", b"")

    async with serving(routes) as server, client(server.url) as http:
        await http.server_info()
        names[:] = ["/server_info"]
        assert (await failure(http, "server_info")).failure is HttpFailure.MISSING
        assert await http.server_info() == b"{}"


async def test_a_redirect_of_the_metrics_is_followed_with_the_key() -> None:
    def routes(path: str, headers: dict[str, str]) -> Answer:
        if headers.get("authorization") != "Bearer sk":
            return 401, "", b""
        return (307, "location: /metrics/\r\n", b"") if path == "/metrics" else (200, "", b"x 1\n")

    async with serving(routes) as server, client(server.url, "sk") as http:
        assert await http.metrics() == b"x 1\n"


@ABSENT
async def test_missing_metrics_name_the_flag(absent: int) -> None:
    async with serving(lambda path, headers: (absent, "", b"")) as server, client(server.url) as http:
        assert "--enable-metrics" in str(await failure(http, "metrics"))


@ABSENT
async def test_an_engine_without_hot_changes_says_so_whatever_its_status_is(absent: int) -> None:
    async with serving(lambda path, headers: (absent, "", b"<html>")) as server, client(server.url) as http:
        with pytest.raises(EngineHttpError, match="this engine has no /set_internal_state") as caught:
            await http.set_internal_state({"speculation": 0})
        assert (caught.value.failure, caught.value.status) == (HttpFailure.MISSING, absent)


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_is_a_problem_of_the_key_and_the_key_is_not_shown(status: int) -> None:
    body = b'{"error":"Unauthorized"}'
    async with serving(lambda path, headers: (status, "", body)) as server, client(server.url, "sk-secret") as http:
        error = await failure(http, "loads")
        assert error.failure is HttpFailure.KEY
        assert "sk-secret" not in str(error) + repr(http)


async def test_nothing_listening_is_down_or_loading() -> None:
    async with client(f"http://127.0.0.1:{free_port()}") as http:
        error = await failure(http, "healthy")
        assert (error.failure, "still loading" in str(error)) == (HttpFailure.NOT_LISTENING, True)


async def test_a_server_that_says_nothing_is_silent() -> None:
    over = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()
        await writer.wait_closed()

    port = free_port()
    listener = await asyncio.start_server(say_nothing, "127.0.0.1", port)
    async with listener, client(f"http://127.0.0.1:{port}", timeout=0.2) as http:
        assert (await failure(http, "healthy")).failure is HttpFailure.SILENT
        over.set()


async def test_an_error_of_the_server_is_quoted() -> None:
    body = b'{"object":"error","message":"out of memory"}'
    async with serving(lambda path, headers: (500, "", body)) as server, client(server.url) as http:
        error = await failure(http, "generate")
        assert (error.failure, str(error)) == (HttpFailure.BROKEN, "/generate answered 500: out of memory")


@pytest.mark.parametrize("body", [b"", b"null", b"{}", b"[]", b"[1]", b'{"a": true}'])
async def test_an_answer_to_a_change_that_is_no_answer_is_broken(body: bytes) -> None:
    async with serving(lambda path, headers: (200, "", body)) as server, client(server.url) as http:
        with pytest.raises(EngineHttpError, match="instead of"):
            await http.set_internal_state({"x": 1})


async def test_the_answer_of_every_rank_is_given() -> None:
    async with serving(lambda path, headers: (200, "", b"[true, false]")) as server, client(server.url) as http:
        assert await http.set_internal_state({"x": 1}) == (True, False)


@pytest.mark.parametrize(
    "body", [b"<html>", b"{}", b'{"text": "", "meta_info": {"completion_tokens": 0}}', b'{"text": "x", "meta_info": null}']
)
async def test_a_prompt_without_tokens_is_no_answer(body: bytes) -> None:
    async with serving(lambda path, headers: (200, "", body)) as server, client(server.url) as http:
        assert (await failure(http, "generate")).failure is HttpFailure.BROKEN


@pytest.mark.parametrize(
    ("words", "url"),
    [
        ((), "http://127.0.0.1:30000"),
        (("--port", "31000"), "http://127.0.0.1:31000"),
        (("--port=31000", "--host=0.0.0.0"), "http://127.0.0.1:31000"),
        (("--host", "::1"), "http://[::1]:30000"),
        (("--host", "::"), "http://[::1]:30000"),
        (("--host", "10.0.0.5", "--port", "1", "--port", "2"), "http://10.0.0.5:2"),
    ],
)
def test_the_address_comes_from_the_command_line(words: tuple[str, ...], url: str) -> None:
    address = engine_address(("ddtree-launch", "serve", *words))
    assert address is not None
    assert address.url == url


@pytest.mark.parametrize(
    "command",
    [("bash", "start.sh"), ("ddtree-launch", "serve", "--port", "many"), ("ddtree-launch", "serve", "--port", "²"), ()],
)
def test_a_command_line_that_does_not_tell_gives_no_address(command: tuple[str, ...]) -> None:
    assert engine_address(command) is None


def test_an_address_never_shows_its_key() -> None:
    address = engine_address(("ddtree-launch", "serve", "--api-key", "sk-secret"))
    assert address is not None
    assert address.api_key == "sk-secret"
    assert "sk-secret" not in repr(address)


@asynccontextmanager
async def dripping(piece: bytes, pause: float) -> AsyncIterator[str]:
    """A server whose answers never end."""

    gone = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")
            while True:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(pause)
        except ConnectionError:
            writer.close()
        finally:
            gone.set()

    port = free_port()
    async with await asyncio.start_server(answer, "127.0.0.1", port):
        yield f"http://127.0.0.1:{port}"
        async with asyncio.timeout(30):
            await gone.wait()


async def test_an_answer_that_drips_in_without_an_end_is_given_up_in_time() -> None:
    async with dripping(b" ", 0.05) as url, client(url, timeout=0.2) as http, asyncio.timeout(30):
        assert (await failure(http, "server_info")).failure is HttpFailure.SILENT


async def test_an_answer_without_bounds_is_not_read_into_memory() -> None:
    async with dripping(b"x" * (1 << 20), 0.0) as url, client(url, timeout=20) as http:
        error = await failure(http, "metrics")
    assert error.failure is HttpFailure.BROKEN
    assert "32 MiB" in str(error)


@pytest.mark.parametrize("key", ["ключ", "two\nlines", "tab\there"])
async def test_a_key_that_cannot_be_sent_is_said_without_being_shown(key: str) -> None:
    async with client("http://127.0.0.1:9", key) as http:
        error = await failure(http, "server_info")
    assert error.failure is HttpFailure.KEY
    assert key not in str(error)


@pytest.mark.parametrize("host", ["a b", "exa\x7fmple", "é" * 80, "[::"])
async def test_a_host_that_is_no_address_is_an_error_in_words(host: str) -> None:
    async with client(f"http://{host}:1") as http:
        await failure(http, "server_info")


async def test_an_engine_that_quotes_a_key_in_its_error_does_not_get_it_onto_the_screen() -> None:
    def routes(path: str, headers: dict[str, str]) -> Answer:
        return 500, "", b'{"error":{"message":"bad call: api_key=sk-secret-123"}}'

    async with serving(routes) as server, client(server.url) as http:
        assert "sk-secret-123" not in str(await failure(http, "server_info"))
