"""Units of a user's own manager: found, read, changed and started as that user, whose HOME the connection may have got wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from dflash_console.hosts.service import RunState
from dflash_console.hosts.systemd import SystemdService
from dflash_console.hosts.systemd_find import find_units
from dflash_console.hosts.systemd_rollback import RollbackTimer
from dflash_console.hosts.transport import HostError
from tests.testhost import TestHost

from .systemd_rig import Rig, UserTransport, rig_on

pytestmark = pytest.mark.slow
COMMAND = "/usr/local/bin/ddtree-launch serve u1 --home %h --speculative-ddtree-budget ${B} %t %S"
UNIT = f"[Service]\nEnvironment=B=8\nExecStart={COMMAND}\n"


@pytest.fixture
async def rig(testhost: TestHost) -> AsyncIterator[Rig]:
    async with rig_on(testhost) as made:
        testhost.add_user("uma")
        testhost.exec("sh", "-c", "systemctl start systemd-logind && loginctl enable-linger uma")
        made.write("/home/uma/.config/systemd/user/u-eng.service", UNIT)
        testhost.exec(
            "sh", "-c", "chown -R uma: /home/uma/.config; until systemctl -q is-active user@$(id -u uma); do sleep 0.1; done"
        )
        yield made
        testhost.exec("sh", "-c", "loginctl disable-linger uma; systemctl stop user@$(id -u uma)", check=False)


async def test_a_users_unit_is_changed_and_started_as_a_systems_is(rig: Rig) -> None:
    transport = UserTransport(rig.host, user="uma")
    service = SystemdService(transport, "u-eng", scope="user")
    config = await service.configuration()
    assert config.command == config.loaded
    runtime = f"/run/user/{rig.host.exec('id', '-u', 'uma').stdout.decode().strip()}"
    assert config.command[3:] == ("--home", "/home/uma", "--speculative-ddtree-budget", "8", runtime, "/home/uma/.config")
    wanted = tuple("16" if word == "8" else word for word in config.command)
    assert (await service.privileges()).missing() == ()
    async with service.lock("apply"):
        await service.write(service.edits(config, wanted))
        assert await service.check() == ()
        await service.reload()
    assert service.drop_in == "/home/uma/.config/systemd/user/u-eng.service.d/zz-ddtree-console.conf"
    config = await service.configuration()
    assert config.loaded == config.command == wanted
    await service.start()
    assert (await service.state()).state is RunState.RUNNING
    assert [(unit.unit, unit.scope) for unit in await find_units(transport) if unit.unit == "u-eng.service"] == [
        ("u-eng.service", "user")
    ]
    timer = RollbackTimer(service.manager, service.unit)
    await timer.arm(1, {service.drop_in: None})
    async with asyncio.timeout(15):
        while (await service.configuration()).loaded == wanted:  # noqa: ASYNC110 - the host's own timer
            await asyncio.sleep(0.2)
    await asyncio.sleep(0.5)
    await service.stop()
    assert (await service.state()).state is RunState.STOPPED


async def test_a_timer_that_would_end_with_the_users_session_is_refused(rig: Rig) -> None:
    service = SystemdService(UserTransport(rig.host, user="uma"), "u-eng", scope="user")
    await service.state()
    rig.host.exec("loginctl", "disable-linger", "uma")
    with pytest.raises(HostError, match="enable-linger uma"):
        await RollbackTimer(service.manager, service.unit).arm(5, {})


async def test_a_user_without_a_manager_is_told_so(rig: Rig) -> None:
    rig.host.add_user("nobody2")
    with pytest.raises(HostError, match=r"own systemd on .* does not answer: .*enable-linger"):
        await SystemdService(UserTransport(rig.host, user="nobody2"), "u-eng", scope="user").state()
