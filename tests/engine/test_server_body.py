"""Bodies that are too large or never come, over the real HTTP stack."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator

import pytest

from engine_launch.embedded import server_body
from engine_launch.embedded.server_body import BODY_SECONDS, MAX_BODY_BYTES
from engine_launch.embedded.server_run import ABORT_SECONDS, DRAIN_SECONDS
from tests.engine.scripted import Script, ScriptedEngine
from tests.engine.serving import Running, serving

PATHS = ("/generate", "/v1/chat/completions", "/v1/completions", "/set_internal_state", "/abort_request")


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
def server(engine: ScriptedEngine) -> Iterator[Running]:
    with serving(engine) as running:
        yield running


@pytest.fixture
def impatient(engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A server that waits for a body for half a second; a busy machine may need longer for a large one."""
    monkeypatch.setattr(server_body.BodyLimits.__init__, "__kwdefaults__", {"max_bytes": MAX_BODY_BYTES, "seconds": 0.5})
    with serving(engine) as running:
        yield running


def connect(server: Running) -> socket.socket:
    assert server.client.get("/health").status_code == 200, "it may only just be starting"
    return socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1])), timeout=10)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("chunked", [False, True])
def test_body_beyond_the_limit_is_413(engine: ScriptedEngine, server: Running, path: str, chunked: bool) -> None:
    body = b'{"text": "' + b"x" * MAX_BODY_BYTES + b'"}'
    response = server.client.post(path, content=iter([body[:1000], body[1000:]]) if chunked else body)
    assert response.status_code == 413
    assert str(MAX_BODY_BYTES) in response.json()["message"]
    assert engine.submitted == []


def test_body_of_just_the_limit_is_read(engine: ScriptedEngine, server: Running) -> None:
    body = json.dumps({"text": "x", "sampling_params": {"max_new_tokens": 1}}).encode()
    assert server.client.post("/generate", content=body.ljust(MAX_BODY_BYTES)).status_code == 200
    assert server.client.post("/generate", content=body.ljust(MAX_BODY_BYTES + 1)).status_code == 413


def test_body_that_never_comes_is_408_and_nobody_else_waits(impatient: Running) -> None:
    with connect(impatient) as slow:
        begun = time.monotonic()
        slow.sendall(b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{")
        assert impatient.post("/generate", {"text": "x"}).status_code == 200
        assert slow.recv(100).startswith(b"HTTP/1.1 408")
        assert 0.4 < time.monotonic() - begun < 5


@pytest.mark.parametrize("path", PATHS)
def test_client_that_leaves_in_the_middle_of_its_body_is_no_error_of_the_server(
    server: Running, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    with connect(server) as leaving:
        leaving.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{{".encode())
        leaving.shutdown(socket.SHUT_WR)
        assert leaving.recv(100) == b""
    assert server.client.get("/health").status_code == 200
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


def test_answer_may_take_longer_than_a_body(engine: ScriptedEngine, impatient: Running) -> None:
    engine.script = Script(answer=b"slow", step=1, pause=0.25)
    for stream in (False, True):
        body = {"text": "x", "stream": stream, "sampling_params": {"max_new_tokens": 4}}
        response = impatient.post("/generate", body)
        assert response.status_code == 200
        assert "slow" in response.text


def test_body_is_given_up_before_the_orderly_end_is() -> None:
    assert BODY_SECONDS < DRAIN_SECONDS + ABORT_SECONDS - 1
