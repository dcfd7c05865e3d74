"""Ports, starting, and the orderly end."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from engine_launch.embedded.events import EngineLog
from engine_launch.embedded.options import EngineOptions
from engine_launch.embedded.server_bind import StartError, allow_listening, bind, inherited
from engine_launch.embedded.server_run import Ready, run_server
from engine_launch.spec.handover import LISTEN_FD_VARIABLE
from tests.engine.scripted import Script, ScriptedEngine, byte_tokenizer, wait_until
from tests.engine.serving import options_for
from tests.ports import free_port

ROOT = Path(__file__).parent.parent.parent
SCRIPTED_SERVER = """
import sys
from engine_launch.embedded.logs import configure_logging
from engine_launch.embedded.server_run import Ready, run_server
from tests.engine.scripted import Script, ScriptedEngine, byte_tokenizer
from tests.engine.serving import options_for
from pathlib import Path
import time

def build(options, log):
    time.sleep(float(sys.argv[2]))
    return Ready(ScriptedEngine(Script(ends=False, pause=0.02)), byte_tokenizer())

sys.exit(run_server(options_for("--port", sys.argv[1]), build, configure_logging("info")))
"""


class Process:
    """A server in a process of its own."""

    def __init__(self, port: int, load_seconds: float, folder: Path, inherits: tuple[int, ...] = ()) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.log = folder / "server.log"
        with self.log.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-c", SCRIPTED_SERVER, str(port), str(load_seconds)],
                stdout=out,
                stderr=out,
                cwd=ROOT,
                pass_fds=inherits,
            )

    def refuses(self) -> bool:
        try:
            httpx.get(self.url + "/health", timeout=1)
        except httpx.TransportError as error:
            # A connection that was let in just before the end is cut, and a busy machine may take its time: neither is a refusal.
            return isinstance(error, httpx.ConnectError)
        return False

    def wait_for(self, text: str) -> bool:
        return wait_until(lambda: text in self.log.read_text(), 60)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(30)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Process]:
    server = Process(free_port(), 0.0, tmp_path)
    assert server.wait_for("fired up")
    yield server
    if server.process.poll() is None:
        server.process.kill()
        server.process.wait()


def test_busy_port_is_told_in_a_sentence() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(StartError, match=f"Port {port} on 127.0.0.1 is in use"):
            bind("127.0.0.1", port)


def test_reserved_port_is_busy_for_a_second_server_although_nobody_listens() -> None:
    first = bind("127.0.0.1", 0)
    try:
        with pytest.raises(StartError, match="in use"):
            bind("127.0.0.1", first.getsockname()[1])
    finally:
        first.close()


def test_connections_that_linger_do_not_make_the_port_busy() -> None:
    """A restart must not wait for TIME_WAIT: the server's side closed first here."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        served, _ = listener.accept()
        served.close()
        assert client.recv(1) == b""
        client.close()
    with bind("127.0.0.1", port) as reserved:
        allow_listening(reserved)
        reserved.listen()


def test_the_socket_that_the_starter_has_bound_is_taken_and_no_other_file(monkeypatch: pytest.MonkeyPatch) -> None:
    with bind("127.0.0.1", 0) as given:
        port = given.getsockname()[1]
        monkeypatch.setenv(LISTEN_FD_VARIABLE, str(os.dup(given.fileno())))
        taken = inherited("127.0.0.1", port)
        assert taken is not None
        assert (taken.getsockname(), os.environ.get(LISTEN_FD_VARIABLE)) == (given.getsockname(), None)
        assert not taken.get_inheritable(), "what the engine starts must not hold its port"
        allow_listening(taken)
        taken.listen()
        taken.close()
        for host, wanted in (("127.0.0.1", port + 1), ("0.0.0.0", port), ("::1", port)):
            monkeypatch.setenv(LISTEN_FD_VARIABLE, str(given.fileno()))
            assert inherited(host, wanted) is None
        assert given.getsockname()[1] == port, "it is left alone"


@pytest.mark.parametrize("value", ["", "x", "-1", "99999", "0", "³"])
def test_what_is_no_socket_is_left_alone_and_the_port_is_bound_as_ever(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(LISTEN_FD_VARIABLE, value)
    assert inherited("127.0.0.1", free_port()) is None
    os.fstat(0)


def test_a_server_serves_on_the_socket_that_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with bind("127.0.0.1", 0) as given:
        monkeypatch.setenv(LISTEN_FD_VARIABLE, str(given.fileno()))
        server = Process(given.getsockname()[1], 0.0, tmp_path, inherits=(given.fileno(),))
    try:
        assert server.wait_for("fired up")
        assert httpx.get(server.url + "/health", timeout=5).status_code == 200
    finally:
        server.stop()


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid", "a..b", "x" * 70])
def test_address_of_another_machine_is_told(host: str) -> None:
    with pytest.raises(StartError, match=host):
        bind(host, 0)


def test_connection_is_refused_while_loading_and_the_port_is_taken(tmp_path: Path) -> None:
    port = free_port()
    server = Process(port, 1.0, tmp_path)
    try:
        assert server.wait_for("server_args=ServerArgs(")
        assert server.refuses()
        with pytest.raises(StartError, match="in use"):
            bind("127.0.0.1", port)
        assert server.wait_for("The server is fired up and ready to roll!")
        assert httpx.get(server.url + "/health").status_code == 200
    finally:
        assert server.stop() == 0


def test_stop_while_loading_ends_at_once(tmp_path: Path) -> None:
    server = Process(free_port(), 30.0, tmp_path)
    assert server.wait_for("server_args=ServerArgs(")
    begun = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - begun < 15, "the load would take 30"
    assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_that_a_library_lets_not_through_ends_the_loading_all_the_same(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    engine = ScriptedEngine(Script())

    def build(options: EngineOptions, log: EngineLog) -> Ready:
        with contextlib.suppress(SystemExit):
            signal.raise_signal(number)
        return Ready(engine, byte_tokenizer())

    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        with pytest.raises(SystemExit) as end:
            run_server(options_for("--port", "0"), build, logging.getLogger("tests.server_run"))
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    assert end.value.code == 0
    assert engine.closed
    assert f"{number.name} received while loading; stopped." in capfd.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_drains_and_ends_with_0(started: Process, number: int) -> None:
    body = {"text": "x", "stream": True, "sampling_params": {"max_new_tokens": 100}}
    with httpx.stream("POST", started.url + "/generate", json=body) as response:
        lines = response.iter_lines()
        next(lines)
        started.process.send_signal(number)
        assert wait_until(started.refuses, 30)
        rest = [line for line in lines if line.startswith("data: {")]
    assert '"finish_reason":{"type":"length","length":100}' in rest[-1], "a running answer may finish"
    assert started.process.wait(30) == 0
    log = started.log.read_text()
    assert f"{signal.Signals(number).name} received." in log
    assert "Traceback" not in log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_second_signal_ends_running_answers_with_abort(started: Process, number: int) -> None:
    body = {"text": "x", "stream": True, "sampling_params": {"max_new_tokens": 100_000}}
    with httpx.stream("POST", started.url + "/generate", json=body, timeout=60) as response:
        lines = response.iter_lines()
        next(lines)
        started.process.send_signal(number)
        assert started.wait_for(" received. signum")
        begun = time.monotonic()
        started.process.send_signal(number)
        rest = list(lines)
    assert time.monotonic() - begun < 30, "the answer would take minutes"
    assert '"type":"abort"' in rest[-4]
    assert started.process.wait(30) == 0
    assert "Traceback" not in started.log.read_text()


@pytest.mark.slow
def test_half_a_request_does_not_spoil_the_end(started: Process) -> None:
    address = ("127.0.0.1", int(started.url.rsplit(":", 1)[1]))
    with socket.create_connection(address) as head, socket.create_connection(address) as body:
        head.sendall(b"POST /generate HTTP/1.1\r\nHost:")
        body.sendall(b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{")
        assert httpx.get(started.url + "/health").status_code == 200
        assert started.stop() == 0
    assert "Traceback" not in started.log.read_text()


def test_server_can_be_started_again_on_its_port_at_once(started: Process, tmp_path: Path) -> None:
    port = int(started.url.rsplit(":", 1)[1])
    with httpx.stream("POST", started.url + "/generate", json={"text": "x", "stream": True}) as response:
        next(response.iter_lines())
        assert started.stop() == 0
    again = Process(port, 0.0, tmp_path)
    try:
        assert again.wait_for("fired up")
    finally:
        assert again.stop() == 0
