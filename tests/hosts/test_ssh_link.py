"""A link that dies and comes back, and ports that answer through it."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator

import httpx
import pytest

from dflash_console.hosts.http import EngineHttp, EngineHttpError, HttpFailure
from dflash_console.hosts.ssh import SshTransport
from dflash_console.hosts.ssh_command import HEARTBEAT_S, SILENCE_S
from dflash_console.hosts.ssh_errors import HostKeyChanged, LinkDown
from dflash_console.hosts.transport import HostError, HostUnreachable, LinkStatus
from tests.hosts.ssh_home import SshHome, over_ssh
from tests.ports import free_port
from tests.testhost import TestHost
from tests.testhost.fixtures import BootHost

pytestmark = pytest.mark.slow
NOTICED_S = 30.0
SLACK_S = 15.0
"""For machines that are busy with other tests."""


async def until(condition: Callable[[], bool], timeout: float) -> float:
    begun = time.monotonic()
    async with asyncio.timeout(timeout):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return time.monotonic() - begun


def is_up(host: SshTransport) -> bool:
    return host.link.status is LinkStatus.UP


@pytest.mark.parametrize("way", ["cut", "hang"])
async def test_a_dead_link_is_noticed_and_comes_back_by_itself(boot_host: BootHost, ssh_home: SshHome, way: str) -> None:
    box = boot_host()
    ssh_home.add_host("gpu", box, "ConnectTimeout 3")
    async with over_ssh("gpu") as host:
        await host.connect()
        waiting = asyncio.create_task(host.run(["sleep", "3001"], timeout=28))
        async with host.stream(["sleep", "3002"]) as chunks:
            reading = asyncio.ensure_future(anext(aiter(chunks)))
            await asyncio.sleep(0.5)
            box.cut() if way == "cut" else box.hang()
            assert await until(lambda: not is_up(host), NOTICED_S + SLACK_S) < NOTICED_S + SLACK_S / 2
            with pytest.raises(HostUnreachable, match="broke while sleep ran"):
                await waiting
            with pytest.raises(HostUnreachable, match="broke while sleep was followed"):
                await reading
        assert host.link.status is LinkStatus.LOST
        assert "has not answered for 24 s" in host.link.reason
        await until(lambda: host.link.next_try is not None, 10)
        begun = time.monotonic()
        with pytest.raises(LinkDown, match=r"was lost \d+ s ago: .* next try in \d+ s"):
            await host.run(["true"])
        assert time.monotonic() - begun < 2
        if way == "cut":
            # The host hears nothing of this: what ran there ends itself.
            left = {("sleep", "3001"), ("sleep", "3002")}
            await until(lambda: not left & set(box.processes().values()), SILENCE_S + HEARTBEAT_S + SLACK_S)
        box.heal() if way == "cut" else box.resume()
        await until(lambda: is_up(host), 60)
        assert (await host.run(["hostname"])).stdout == b"gpu-a\n"


async def test_a_server_that_restarts_is_reached_again(boot_host: BootHost, ssh_home: SshHome) -> None:
    box = boot_host()
    ssh_home.add_host("gpu", box)
    async with over_ssh("gpu") as host:
        await host.connect()
        box.exec("systemctl", "restart", "testhost-ssh")
        box.exec("pkill", "-f", "sshd: root", check=False)
        await until(lambda: host.link.status is LinkStatus.LOST, 20)
        await until(lambda: is_up(host), 30)
        assert (await host.run(["true"])).ok


async def test_a_key_that_has_changed_meanwhile_stops_the_tries(boot_host: BootHost, ssh_home: SshHome) -> None:
    box = boot_host()
    ssh_home.add_host("gpu", box)
    async with over_ssh("gpu") as host:
        await host.connect()
        box.exec("sh", "-c", "rm /etc/ssh/ssh_host_ed25519_key*; ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key")
        box.exec("systemctl", "restart", "testhost-ssh")
        box.exec("pkill", "-f", "sshd: root", check=False)
        await until(lambda: host.link.status is LinkStatus.REFUSED, 30)
        assert "has changed" in host.link.reason
        with pytest.raises(HostKeyChanged):
            await host.run(["true"])


async def test_a_jump_host_that_dies_takes_the_link_with_it(boot_host: BootHost, ssh_home: SshHome) -> None:
    jump, box = boot_host("bastion"), boot_host("gpu-a")
    ssh_home.add_host("bastion", jump, "ConnectTimeout 3")
    ssh_home.add_host("gpu", box, "ProxyJump bastion")
    async with over_ssh("gpu") as host:
        await host.connect()
        jump.exec("systemctl", "stop", "testhost-ssh")
        jump.exec("pkill", "-f", "sshd: root", check=False)
        await until(lambda: host.link.status is LinkStatus.LOST and host.link.next_try is not None, 30)
        await until(lambda: "bastion" in host.link.reason, 30)
        assert "refuses the connection" in host.link.reason
        jump.exec("systemctl", "start", "testhost-ssh")
        await until(lambda: is_up(host), 60)


async def test_after_close_nothing_is_tried_any_more(testhost: TestHost, ssh_home: SshHome) -> None:
    ssh_home.add_host("gpu", testhost)
    async with over_ssh("gpu") as host:
        await host.connect()
        await host.close()
        assert host.link.status is LinkStatus.CLOSED
        with pytest.raises(HostError, match="is closed"):
            await host.run(["true"])


class Echo(threading.Thread):
    """A small HTTP server: says how many bytes came, or streams."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._server = socket.create_server(("127.0.0.1", port))
        self._open: list[socket.socket] = []

    def run(self) -> None:
        while True:
            try:
                taken, _ = self._server.accept()
            except OSError:
                return
            self._open.append(taken)
            threading.Thread(target=self._serve, args=(taken,), daemon=True).start()

    def _serve(self, taken: socket.socket) -> None:
        with taken, taken.makefile("rb") as lines:
            while first := lines.readline():
                headers = dict(line.lower().rstrip().split(b": ", 1) for line in iter(lines.readline, b"\r\n"))
                size = len(lines.read(int(headers.get(b"content-length", 0))))
                if b"/stream" not in first:
                    body = str(size).encode()
                    taken.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
                    continue
                taken.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                for number in range(5):
                    taken.sendall(b"2\r\n%d\n\r\n" % number)
                    time.sleep(0.2)
                taken.sendall(b"0\r\n\r\n")

    def stop(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for taken in self._open:
            try:
                taken.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


@pytest.fixture
def echo() -> Iterator[Callable[[int], Echo]]:
    started: list[Echo] = []

    def start(port: int) -> Echo:
        started.append(Echo(port))
        started[-1].start()
        return started[-1]

    yield start
    for server in started:
        try:
            server.stop()
        except OSError:
            continue


async def test_a_forwarded_port_answers_as_it_would_beside_the_engine(
    testhost: TestHost, ssh_home: SshHome, echo: Callable[[int], Echo]
) -> None:
    ssh_home.add_host("gpu", testhost)
    port = free_port()
    async with over_ssh("gpu") as host, host.forward(port) as url:
        engine = EngineHttp(url)
        with pytest.raises(EngineHttpError) as before:
            await engine.healthy()
        assert before.value.failure is HttpFailure.NOT_LISTENING
        server = echo(port)
        async with httpx.AsyncClient(base_url=url, timeout=20) as client:

            async def answers() -> bool:
                try:
                    return (await client.get("/")).is_success
                except httpx.ConnectError:
                    return False

            async with asyncio.timeout(20):
                while not await answers():  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            assert await engine.healthy()
            body = b"x" * 3_000_000
            assert (await client.post("/", content=body)).text == str(len(body))
            times = []
            async with client.stream("GET", "/stream") as answer:
                async for _ in answer.aiter_lines():
                    times.append(time.monotonic())
            assert len(times) == 5
            assert times[-1] - times[0] > 0.5, "pieces come as they are sent"
            many = await asyncio.gather(*(client.get("/") for _ in range(30)))
            assert all(found.is_success for found in many)
        server.stop()
        await asyncio.sleep(1)
        with pytest.raises(EngineHttpError) as after:
            await engine.healthy()
        assert after.value.failure is HttpFailure.NOT_LISTENING
        await engine.close()
    with pytest.raises(httpx.ConnectError):
        await httpx.AsyncClient().get(url)


async def test_an_engine_that_went_unseen_is_refused_from_the_second_connection_on(
    testhost: TestHost, ssh_home: SshHome, echo: Callable[[int], Echo]
) -> None:
    ssh_home.add_host("gpu", testhost)
    port = free_port()
    server = echo(port)
    async with over_ssh("gpu") as host, host.forward(port) as url, httpx.AsyncClient(base_url=url, timeout=20) as client:
        server.stop()
        # Nothing ran through the forward, so nothing told it; the local port has already accepted when the host refuses.
        with pytest.raises((httpx.NetworkError, httpx.RemoteProtocolError)):
            await client.get("/")
        with pytest.raises(httpx.ConnectError):
            await client.get("/")


async def test_closing_a_forward_ends_what_runs_through_it(
    testhost: TestHost, ssh_home: SshHome, echo: Callable[[int], Echo]
) -> None:
    ssh_home.add_host("gpu", testhost)
    port = free_port()
    echo(port)
    async with over_ssh("gpu") as host:
        async with host.forward(port) as url:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(reader.readexactly(1000), 10)
        writer.close()


async def test_a_forward_lives_through_a_reconnection(
    boot_host: BootHost, ssh_home: SshHome, echo: Callable[[int], Echo]
) -> None:
    box = boot_host()
    ssh_home.add_host("gpu", box)
    port = free_port()
    echo(port)
    async with over_ssh("gpu") as host, host.forward(port) as url, httpx.AsyncClient(base_url=url, timeout=20) as client:
        assert (await client.get("/")).is_success
        box.exec("pkill", "-f", "sshd: root", check=False)
        await until(lambda: host.link.status is LinkStatus.LOST, 20)
        await until(lambda: is_up(host), 30)
        assert (await client.get("/")).is_success


async def test_a_host_that_forbids_forwarding_says_so(boot_host: BootHost, ssh_home: SshHome) -> None:
    ssh_home.add_host("gpu", boot_host(sshd="AllowTcpForwarding no\n"))
    async with over_ssh("gpu") as host:
        with pytest.raises(HostError, match="forbids to forward its port"):
            async with host.forward(free_port()):
                pass
