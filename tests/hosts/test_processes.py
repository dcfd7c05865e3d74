"""Whose process it is, on a real host: as root and as a user who may see little, for children, orphans and strangers."""

from __future__ import annotations

import asyncio

import pytest

from dflash_console.evidence.process import container_of
from dflash_console.hosts.listener import Listener, listener_of, port_holder
from dflash_console.hosts.proc_table import read_processes
from tests.ports import free_port
from tests.testhost import TestHost

from .systemd_rig import UserTransport

pytestmark = pytest.mark.slow

# The main process starts a child and an orphan, which listens on the port and stays in the unit's control group.
ENGINE = r"""
import os, signal, socket, sys, time
if os.fork() == 0:
    if os.fork() == 0:
        server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
        time.sleep(600)
    os._exit(0)
os.wait()
time.sleep(600)
"""


async def on(host: TestHost, *argv: str) -> str:
    return (await asyncio.to_thread(host.exec, *argv)).stdout.decode().strip()


async def start(host: TestHost, name: str, *words: str) -> int:
    """The main process of a unit that was started."""
    host.path(f"/root/{name}.py").write_text(ENGINE)
    host.install_unit(f"{name}.service", f"[Service]\nExecStart=/usr/bin/python3 /root/{name}.py {' '.join(words)}\n")
    await on(host, "systemctl", "start", name)
    return int(await on(host, "systemctl", "show", "--property=MainPID", "--value", name))


async def until_listening(transport: UserTransport, port: int) -> None:
    for _ in range(200):
        if await port_holder(transport, "127.0.0.1", port) is not None:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"nobody listens on {port}")


async def test_an_orphan_in_the_units_control_group_is_the_units_and_another_unit_is_not(testhost: TestHost) -> None:
    port = free_port()
    transport = UserTransport(testhost)
    main = await start(testhost, "family", str(port))
    other = await start(testhost, "stranger", str(free_port()))
    try:
        await until_listening(transport, port)
        table = await read_processes(transport)
        family = table.family(main)
        orphan = next(pid for pid in family if pid != main)
        assert table.processes[orphan].parent == 1
        assert other not in family
        assert table.named(orphan) == f"pid {orphan} (python3, family.service)"
        assert not table.partial
        assert await listener_of(transport, "127.0.0.1", port, main) is Listener.OURS
        assert await listener_of(transport, "127.0.0.1", port, other) is Listener.OTHER
        holder = await port_holder(transport, "127.0.0.1", port)
        assert holder is not None
        assert "family.service" in holder.words
    finally:
        await on(testhost, "systemctl", "stop", "family", "stranger")


async def test_what_a_user_may_not_look_into_is_unknown_and_never_called_a_strangers(testhost: TestHost) -> None:
    port = free_port()
    main = await start(testhost, "hidden", str(port))
    testhost.add_user("looker")
    transport = UserTransport(testhost, user="looker")
    try:
        await until_listening(UserTransport(testhost), port)
        assert await listener_of(transport, "127.0.0.1", port, main) is Listener.UNKNOWN
        holder = await port_holder(transport, "127.0.0.1", port)
        assert holder is not None
        assert not holder.pids
        assert "number 0" in holder.words
        table = await read_processes(transport)
        assert table.processes[main].unit == "hidden.service", "command line and control group are everybody's to read"
        assert table.processes[main].argv[0] == "/usr/bin/python3"
    finally:
        await on(testhost, "systemctl", "stop", "hidden")


async def test_nobody_on_the_port_is_unknown(testhost: TestHost) -> None:
    transport = UserTransport(testhost)
    assert await listener_of(transport, "127.0.0.1", free_port(), 1) is Listener.UNKNOWN
    assert await port_holder(transport, "127.0.0.1", free_port()) is None


async def test_the_table_agrees_with_what_each_process_file_says(testhost: TestHost) -> None:
    name = "odd \n) name"
    testhost.path("/root/odd.py").write_text(f"import time\nopen('/proc/self/comm', 'w').write({name!r})\ntime.sleep(600)\n")
    testhost.install_unit("odd.service", "[Service]\nExecStart=/usr/bin/python3 /root/odd.py 'a b' '' 'c\\nd'\n")
    await on(testhost, "systemctl", "start", "odd")
    try:
        pid = int(await on(testhost, "systemctl", "show", "--property=MainPID", "--value", "odd"))
        for _ in range(200):
            found = (await read_processes(UserTransport(testhost))).processes[pid]
            if found.name == name:
                break
            await asyncio.sleep(0.1)
        assert found.name == name
        assert found.argv == ("/usr/bin/python3", "/root/odd.py", "a b", "", "c\nd")
        assert found.unit == "odd.service"
        assert found.parent == 1
        stat = await UserTransport(testhost).read(f"/proc/{pid}/stat")
        assert found.started_ticks == int(stat.rpartition(b")")[2].split()[19])
    finally:
        await on(testhost, "systemctl", "stop", "odd")


@pytest.mark.parametrize(
    ("cgroup", "named"),
    [
        ("/system.slice/docker-" + "0f" * 32 + ".scope", "docker 0f0f0f0f0f0f"),
        ("/docker/" + "0f" * 32, "docker 0f0f0f0f0f0f"),
        ("/machine.slice/libpod-" + "0f" * 32 + ".scope/container", "podman 0f0f0f0f0f0f"),
        ("/kubepods.slice/kubepods-podx.slice/cri-containerd-" + "0f" * 32 + ".scope", "containerd 0f0f0f0f0f0f"),
        ("/kubepods/besteffort/podx/" + "0f" * 32, "kubernetes 0f0f0f0f0f0f"),
        ("/system.slice/docker.service", ""),
        ("/user.slice/user-0.slice/session-1.scope", ""),
    ],
)
def test_a_container_is_named_by_its_control_group(cgroup: str, named: str) -> None:
    assert container_of(cgroup) == named
