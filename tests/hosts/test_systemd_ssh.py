"""A unit over the real connection: SSH to a real host, as a user whose login shell is none of POSIX's and who has sudo."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from dflash_console.evidence.command import set_flag
from dflash_console.hosts.service import RunState
from dflash_console.hosts.systemd import SystemdService
from dflash_console.hosts.systemd_find import find_units
from dflash_console.hosts.transport import HostError
from dflash_console.knobs import KNOBS
from tests.testhost import TestHost

from .ssh_home import SshHome, over_ssh
from .systemd_rig import Rig, rig_on, unit_text

pytestmark = pytest.mark.slow


@pytest.fixture
async def rig(testhost: TestHost, ssh_home: SshHome) -> AsyncIterator[Rig]:
    async with rig_on(testhost) as made:
        testhost.add_user("fisher", shell="/usr/bin/fish")
        made.write("/etc/sudoers.d/fisher", "fisher ALL=(root) NOPASSWD: ALL\n", mode=0o440)
        ssh_home.add_host("gpu", testhost)
        ssh_home.add_host("fish", testhost, user="fisher")
        yield made
        testhost.exec("rm", "-f", "/etc/sudoers.d/fisher")


@pytest.mark.parametrize("destination", ["gpu", "fish"])
async def test_a_unit_is_found_changed_restarted_and_read_back_over_ssh(rig: Rig, destination: str) -> None:
    rig.unit("s-eng.service", unit_text("seng", "--speculative-ddtree-budget 8", "--port 31001"))
    async with over_ssh(destination) as transport:
        assert "s-eng.service" in [unit.unit for unit in await find_units(transport)]
        service = SystemdService(transport, "s-eng", author="ada@desk")
        assert await service.preflight() == ()
        config = await service.configuration()
        wanted = (*set_flag(config.command, KNOBS["tree_budget"], 16), "--x", 'it\'s \\ "%i" $HOME\n;')
        await service.start()
        before = await service.state()
        async with service.lock("apply"):
            complaints = await service.check()
            await service.write(service.edits(config, wanted))
            assert await service.check() == complaints
            await service.reload()
            config = await service.configuration()
            assert config.loaded == config.command == wanted
            await service.restart()
        after = await service.state()
        assert (after.state, after.invocation_id != before.invocation_id) == (RunState.RUNNING, True)
        await asyncio.sleep(0.3)
        assert rig.argv("seng")[1:] == wanted[1:]
        texts = [line.text for line in await service.lines(invocation_id=after.invocation_id)]
        assert any("Started" in text for text in texts)
        await service.stop()


async def test_a_lock_ends_with_the_connection_that_held_it(rig: Rig) -> None:
    rig.unit("s-lock.service", unit_text("slock"))
    async with over_ssh("gpu") as other, over_ssh("fish") as closing:
        holder = SystemdService(closing, "s-lock").lock("apply by ada")
        await holder.__aenter__()
        with pytest.raises(HostError, match="is being changed by apply by ada"):
            async with SystemdService(other, "s-lock").lock("restart by bob"):
                pass
        begun = time.monotonic()
        await closing.close()
        while True:
            try:
                async with SystemdService(other, "s-lock").lock("restart by bob"):
                    break
            except HostError:
                assert time.monotonic() - begun < 30
        await holder.__aexit__(None, None, None)


async def test_how_long_looking_takes(rig: Rig) -> None:
    """The watcher asks for the state every second or two: that has to stay one short command."""
    rig.unit("s-time.service", unit_text("stime"))
    async with over_ssh("gpu") as transport:
        service = SystemdService(transport, "s-time")
        await service.state()
        ran = len(transport.commands.records())
        await service.state()
        assert len(transport.commands.records()) == ran + 1
