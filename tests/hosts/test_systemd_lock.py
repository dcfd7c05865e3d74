"""A unit's lock across a link that was down: still held, had again, or taken over by somebody meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from dflash_console.hosts import systemd_lock
from dflash_console.hosts.systemd import SystemdService
from dflash_console.hosts.transport import HostError, HostUnreachable

from .inside import InsideTransport
from .systemd_rig import Rig, unit_text

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systemd_lock, "FRESH_S", 3.0)
    monkeypatch.setattr(systemd_lock, "ASSURE_S", 10.0)


def engineer(rig: Rig, unit: str, who: str) -> tuple[SystemdService, InsideTransport]:
    transport = InsideTransport(rig.host)
    return SystemdService(transport, unit, author=who, job_timeout=20.0), transport


async def lost(transport: InsideTransport) -> None:
    """The link goes and stays down until the last sign of the lock proves nothing any more."""
    transport.cut(stay_down=True)
    await asyncio.sleep(systemd_lock.FRESH_S + 0.5)


@pytest.mark.parametrize("done", [True, False], ids=["and gave it back", "and has it still"])
async def test_a_unit_that_somebody_took_over_while_the_link_was_down_is_changed_no_more(rig: Rig, done: bool) -> None:
    rig.unit("l-over.service", unit_text("lover"))
    ada, link = engineer(rig, "l-over", "ada@desk")
    bob, _ = engineer(rig, "l-over", "bob@laptop")
    config = await ada.configuration()
    edits = ada.edits(config, (*config.command, "--more"))
    async with ada.lock("apply"):
        await ada.restart()
        before = await ada.state()
        await lost(link)
        theirs = bob.lock("apply")
        await theirs.__aenter__()
        if done:
            await theirs.__aexit__(None, None, None)
        link.up = True
        changes = (ada.restart, ada.stop, ada.reload, lambda: ada.write(edits), lambda: ada.rollback_timer().arm(60, {}))
        for change in changes:
            with pytest.raises(HostError, match=r"taken over by apply \(bob@laptop\) since"):
                await change()
        assert (await ada.state()).invocation_id == before.invocation_id
        assert (await ada.configuration()).sources == config.sources
        if not done:
            await theirs.__aexit__(None, None, None)


async def test_a_lock_that_nobody_took_meanwhile_is_had_again_and_the_operation_goes_on(rig: Rig) -> None:
    rig.unit("l-again.service", unit_text("lagain"))
    ada, link = engineer(rig, "l-again", "ada@desk")
    bob, _ = engineer(rig, "l-again", "bob@laptop")
    async with ada.lock("apply"):
        await lost(link)
        with pytest.raises(HostUnreachable):
            await ada.restart()
        link.up = True
        await ada.restart()
        with pytest.raises(HostError, match=r"is being changed by apply \(ada@desk\)"):
            async with bob.lock("apply"):
                pass
    async with bob.lock("apply"):
        await bob.restart()


async def test_the_process_of_the_connection_before_holds_the_unit_for_the_operation_that_lost_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead link is noticed here before the host notices: there the lock's process still runs."""
    monkeypatch.setattr(InsideTransport, "cut", lambda self, **_: setattr(self, "up", True))
    rig.unit("l-zombie.service", unit_text("lzombie"))
    ada, _ = engineer(rig, "l-zombie", "ada@desk")
    async with ada.lock("apply"):
        lock = ada._lock
        assert lock is not None
        # As after a reconnection: another process asks for the lock that the first one still holds.
        second = systemd_lock.UnitLock(ada.manager, ada.unit, "apply (ada@desk)")
        second._mine, second._path = lock._mine, lock._path
        second._held.set()
        keeping = asyncio.create_task(second._keep())
        try:
            await second.assure()
            assert not second._taken_by
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
