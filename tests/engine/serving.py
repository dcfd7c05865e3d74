"""Runs the real HTTP stack (uvicorn on a real port) over an engine of the test's choice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import httpx
import uvicorn

from engine_launch.embedded.api import Engine
from engine_launch.embedded.server import Server
from engine_launch.embedded.server_bind import allow_listening, bind
from engine_launch.embedded.server_options import ServerOptions, server_options
from engine_launch.embedded.tokenizer import Tokenizer
from engine_launch.spec.flags import parse_flags
from tests.engine.scripted import byte_tokenizer


@dataclass(frozen=True)
class Running:
    url: str
    client: httpx.Client

    def post(self, path: str, body: object, **headers: str) -> httpx.Response:
        return self.client.post(path, json=body, headers=headers)

    def events(self, path: str, body: object) -> list[dict[str, object]]:
        """The JSON of a stream's events; it must end with ``[DONE]``."""
        with self.client.stream("POST", path, json=body) as response:
            assert response.status_code == 200, response.read()
            assert response.headers["content-type"].startswith("text/event-stream")
            data = [line.removeprefix("data: ") for line in response.iter_lines() if line]
        assert data[-1] == "[DONE]"
        return [json.loads(item) for item in data[:-1]]


def options_for(*argv: str) -> ServerOptions:
    return server_options(parse_flags(["--port", "0", "--speculative-algorithm", "DDTREE", *argv]))


@contextlib.contextmanager
def serving(engine: Engine, *argv: str, tokenizer: Tokenizer | None = None) -> Iterator[Running]:
    """Serve ``engine`` with these flags until the block ends."""
    options = options_for(*argv)
    reserved = bind(options.host, options.port)
    allow_listening(reserved)
    port = reserved.getsockname()[1]
    app = Server(engine, tokenizer or byte_tokenizer(), replace(options, port=port)).app()
    config = uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[reserved])))
    thread.start()
    # The port is known before anything listens on it, and not every client of the tests tries again.
    until = time.monotonic() + 30
    while not server.started and thread.is_alive() and time.monotonic() < until:
        time.sleep(0.005)
    url = f"http://127.0.0.1:{port}"
    try:
        with httpx.Client(base_url=url, timeout=10.0, transport=httpx.HTTPTransport(retries=5, verify=False)) as client:
            yield Running(url, client)
    finally:
        server.should_exit = True
        thread.join()
        reserved.close()
