"""The timer on the host that puts the confirmed configuration back, and the audit file there."""

from __future__ import annotations

import asyncio
import json

import pytest

from dflash_console.evidence.command import set_flag
from dflash_console.hosts.service import RunState
from dflash_console.hosts.systemd_audit import append_audit_line
from dflash_console.hosts.systemd_rollback import RollbackTimer
from dflash_console.hosts.transport import HostError
from dflash_console.knobs import KNOBS
from tests.testhost.fixtures import BootHost

from .systemd_rig import Rig, rig_on, unit_text

pytestmark = pytest.mark.slow


async def test_a_change_that_nobody_confirms_is_put_back_by_the_host_itself(rig: Rig) -> None:
    rig.unit("r-back.service", unit_text("rback", "--speculative-ddtree-budget 8"), own="[Service]\nEnvironment='N=1'\n")
    service = rig.service("r-back")
    before = await service.configuration()
    await service.start()
    old = await service.state()
    timer = RollbackTimer(service.manager, service.unit, author='ada\'s "desk" 100%')
    armed = await timer.arm(3, service.restorable(before))
    await service.write(service.edits(before, set_flag(before.command, KNOBS["tree_budget"], 16)))
    await service.reload()
    await service.restart()
    changed = await service.state()
    assert (await service.configuration()).loaded != before.command
    assert await timer.armed()
    async with asyncio.timeout(20):
        while (await service.state()).invocation_id in (old.invocation_id, changed.invocation_id):  # noqa: ASYNC110 - the host
            await asyncio.sleep(0.2)
    await asyncio.sleep(0.5)
    after = await service.configuration()
    assert after.loaded == after.command == before.command
    assert [(s.path, s.text) for s in after.sources] == [(s.path, s.text) for s in before.sources]
    assert not await timer.disarm(), "it had fired: that is never called 'off'"
    assert await timer.fired()
    line = json.loads(rig.path("/var/log/ddtree-console/audit.jsonl").read_text().splitlines()[-1])
    assert (line["who"], line["what"], line["unit"], line["status"]) == (
        *('ada\'s "desk" 100%', "roll-back by the timer", "r-back.service", 0),
    )
    assert armed.name == "ddtree-rollback-r-back"


async def test_a_timer_that_was_called_off_does_not_fire_and_leaves_no_text_behind(rig: Rig) -> None:
    rig.unit("r-off.service", unit_text("roff"))
    service = rig.service("r-off")
    config = await service.configuration()
    await service.start()
    state = await service.state()
    timer = RollbackTimer(service.manager, service.unit)
    await timer.arm(2, service.restorable(config))
    assert await timer.disarm()
    assert not await timer.disarm(), "there is none any more"
    await asyncio.sleep(3)
    assert (await service.state()).invocation_id == state.invocation_id
    assert not await timer.fired()
    assert not list(rig.path("/var/lib/ddtree-console/rollback").glob("*r-off.sh"))
    assert not list(rig.path("/etc/systemd/system").rglob("ddtree-rollback-r-off*"))
    assert b"r-off" not in rig.host.exec("systemctl", "list-units", "--all", "ddtree-rollback-*").stdout


async def test_a_host_that_is_rebooted_before_anybody_confirmed_goes_back_as_well(boot_host: BootHost) -> None:
    host = boot_host()
    async with rig_on(host) as rig:
        rig.unit("r-boot.service", unit_text("rboot", "--speculative-ddtree-budget 8") + "[Install]\nWantedBy=basic.target\n")
        host.exec("systemctl", "enable", "r-boot.service")
        service = rig.service("r-boot")
        before = await service.configuration()
        timer = RollbackTimer(service.manager, service.unit)
        await timer.arm(4, service.restorable(before))
        await service.write(service.edits(before, set_flag(before.command, KNOBS["tree_budget"], 16)))
        host.reboot(at_once=True)
        assert (await service.configuration()).loaded != before.command
        assert await timer.armed()
        async with asyncio.timeout(20):
            while not await timer.fired() or await timer.armed():  # noqa: ASYNC110 - the host's own timer
                await asyncio.sleep(0.2)
        await asyncio.sleep(0.5)
        assert (await service.configuration()).loaded == before.command
        assert (await service.state()).state is RunState.RUNNING
        assert not list(host.path("/etc/systemd/system").rglob("ddtree-rollback-*")), "nothing is left to run again"


async def test_a_roll_back_that_a_power_failure_cut_off_is_done_again(boot_host: BootHost) -> None:
    host = boot_host()
    async with rig_on(host) as rig:
        rig.unit("r-cut.service", unit_text("rcut"))
        service = rig.service("r-cut")
        await service.configuration()
        timer = RollbackTimer(service.manager, service.unit)
        await timer.arm(3, {"/etc/r-cut.env": "A=1\n"})
        # As it stands when the power fails right after the script's first step.
        state = "/var/lib/ddtree-console/rollback/ddtree-rollback-r-cut"
        host.exec("mv", f"{state}.armed", f"{state}.fired")
        host.reboot(at_once=True)
        async with asyncio.timeout(20):
            while not host.path(f"{state}.done").exists():  # noqa: ASYNC110 - the host's own timer
                await asyncio.sleep(0.2)
        assert host.path("/etc/r-cut.env").read_text() == "A=1\n"


@pytest.mark.parametrize("broken", ["mv", "mv and rm"])
async def test_a_timer_that_cannot_be_called_off_is_removed_or_never_said_to_be_off(boot_host: BootHost, broken: str) -> None:
    host = boot_host()
    async with rig_on(host) as rig:
        rig.unit("r-stuck.service", unit_text("rstuck"))
        service = rig.service("r-stuck")
        config = await service.configuration()
        await service.start()
        state = await service.state()
        timer = RollbackTimer(service.manager, service.unit)
        await timer.arm(4, service.restorable(config))
        for program in broken.split(" and "):
            rig.write(f"/usr/local/sbin/{program}", '#!/bin/sh\necho "Input/output error" >&2; exit 1\n', mode=0o755)
        if "rm" not in broken:
            assert await timer.disarm()
            await asyncio.sleep(5)
            assert (await service.state()).invocation_id == state.invocation_id
        else:
            with pytest.raises(HostError, match=r"could not be called off .*Input/output error"):
                await timer.disarm()


async def test_an_odd_file_and_one_that_was_not_there_are_put_back_byte_for_byte(rig: Rig) -> None:
    rig.unit("r-odd.service", unit_text("rodd"))
    odd = 'A="\'$x `id` %s \\\\ é"\r\n\nEND\n'
    rig.write("/etc/r odd's.env", odd, mode=0o640)
    rig.write("/etc/r-new.env", "later\n")
    service = rig.service("r-odd")
    timer = RollbackTimer(service.manager, service.unit)
    await timer.arm(1, {"/etc/r odd's.env": odd, "/etc/r-new.env": None, "/etc/r-gone/x.conf": "was\n"}, restart=False)
    rig.write("/etc/r odd's.env", "changed", mode=0o640)
    async with asyncio.timeout(15):
        while not rig.path("/etc/r-gone/x.conf").exists() or rig.path("/etc/r-new.env").exists():  # noqa: ASYNC110 - a file
            await asyncio.sleep(0.1)
    assert rig.path("/etc/r odd's.env").read_bytes().decode() == odd
    assert rig.path("/etc/r odd's.env").stat().st_mode & 0o777 == 0o640


async def test_lines_of_several_writers_at_once_stay_whole(rig: Rig) -> None:
    rig.unit("r-audit.service", unit_text("raudit"))
    service = rig.service("r-audit")
    await service.state()
    why = 'because\nof "it" \\ 100% é ' + "x" * 3000
    paths = await asyncio.gather(*(append_audit_line(service.manager, {"who": "ada", "n": n, "why": why}) for n in range(12)))
    lines = [json.loads(line) for line in rig.path(paths[0]).read_text().splitlines()]
    mine = [line for line in lines if line.get("why") == why]
    assert sorted(line["n"] for line in mine) == list(range(12))
    assert all(line["time"].startswith("20") for line in mine)
    assert rig.path(paths[0]).stat().st_mode & 0o777 == 0o600


async def test_without_roots_rights_no_timer_is_promised(rig: Rig) -> None:
    rig.host.add_user("plain")
    rig.unit("r-plain.service", unit_text("rplain"))
    service = rig.service("r-plain", user="plain")
    with pytest.raises(HostError, match="takes root's rights"):
        await RollbackTimer(service.manager, service.unit).arm(5, {})
