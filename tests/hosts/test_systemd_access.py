"""What a user may do with a unit is known before anything is written: root, sudo, a rule for one command, polkit, nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from dflash_console.evidence.command import set_flag
from dflash_console.hosts.service import RunState
from dflash_console.hosts.transport import HostError
from dflash_console.knobs import KNOBS
from tests.testhost import TestHost

from .systemd_rig import Rig, rig_on, unit_text

pytestmark = pytest.mark.slow


@pytest.fixture
async def rig(testhost: TestHost) -> AsyncIterator[Rig]:
    async with rig_on(testhost) as made:
        for name in ("looker", "admin", "ruled"):
            testhost.add_user(name)
        made.write(
            "/etc/sudoers.d/b2",
            "admin ALL=(root) NOPASSWD: ALL\nruled ALL=(root) NOPASSWD: /usr/bin/systemctl restart a-rule\n",
            mode=0o440,
        )
        yield made
        testhost.exec("rm", "-f", "/etc/sudoers.d/b2")


async def test_root_may_everything(rig: Rig) -> None:
    rig.unit("a-root.service", unit_text("aroot"))
    rights = await rig.service("a-root").privileges()
    assert (rights.read.allowed, rights.write.allowed, rights.control.allowed, rights.journal.allowed) == (True,) * 4
    assert rights.missing() == ()


async def test_a_user_who_may_only_look_is_told_what_is_missing_and_sees_the_state(rig: Rig) -> None:
    rig.unit("a-look.service", unit_text("alook", "--speculative-ddtree-budget 8"))
    service = rig.service("a-look", user="looker")
    rights = await service.privileges()
    assert (rights.read.allowed, rights.write.allowed, rights.control.allowed, rights.journal.allowed) == (
        True,
        False,
        None,
        False,
    )
    assert "cannot be written as looker, and sudo says:" in rights.missing()[0]
    assert "systemd-journal" in rights.journal.how
    config = await service.configuration()
    assert config.command == config.loaded
    with pytest.raises(HostError, match=r"not allowed: .*Interactive authentication required"):
        await service.restart()
    with pytest.raises(HostError, match="annot write"):
        await service.write(service.edits(config, set_flag(config.command, KNOBS["tree_budget"], 4)))
    assert (await service.state()).state is RunState.STOPPED


async def test_a_user_with_sudo_reads_a_unit_of_mode_0600_changes_and_restarts_it(rig: Rig) -> None:
    rig.unit("a-sudo.service", unit_text("asudo", "--speculative-ddtree-budget 8"))
    rig.host.exec("chmod", "600", "/etc/systemd/system/a-sudo.service")
    service = rig.service("a-sudo", user="admin")
    rights = await service.privileges()
    assert (rights.read.allowed, rights.write.allowed, rights.control.allowed) == (True, True, True)
    assert "through sudo" in rights.read.how
    config = await service.configuration()
    assert config.problems == ()
    wanted = set_flag(config.command, KNOBS["tree_budget"], 4)
    async with service.lock("apply"):
        await service.write(service.edits(config, wanted))
        await service.reload()
    written = rig.path(service.drop_in)
    assert written.stat().st_mode & 0o777 == 0o600, "the unit is nobody else's to read, so neither is the drop-in"
    await service.start()
    config = await service.configuration()
    assert config.loaded == config.command == wanted
    assert (await service.state()).state is RunState.RUNNING
    assert await service.check() == ()


async def test_a_unit_that_cannot_be_read_is_known_by_what_systemd_loaded_and_says_so(rig: Rig) -> None:
    rig.unit("a-closed.service", unit_text("aclosed", "--speculative-ddtree-budget 8"))
    rig.host.exec("chmod", "600", "/etc/systemd/system/a-closed.service")
    service = rig.service("a-closed", user="looker")
    config = await service.configuration()
    assert config.command == config.loaded
    assert "--speculative-ddtree-budget" in config.command
    assert any("a-closed.service" in problem and "ermission denied" in problem for problem in config.problems)
    assert (await service.privileges()).read.allowed is False


async def test_a_user_with_a_journal_of_his_own_is_not_taken_for_one_who_may_read_the_systems(rig: Rig) -> None:
    rig.unit("a-own.service", unit_text("aown"))
    service = rig.service("a-own", user="ruled")
    # One use of sudo leaves a line of this user's, and with it a journal that he may read: journalctl then gives no hint.
    rig.host.exec("runuser", "-u", "ruled", "--", "sudo", "-n", "true", check=False)
    rig.host.exec("journalctl", "--sync")
    assert (await service.privileges()).journal.allowed is False
    with pytest.raises(HostError, match="systemd-journal"):
        await service.lines()
    admin = rig.service("a-own", user="admin")
    await admin.start()
    assert any("Started" in line.text for line in await admin.lines())


async def test_a_rule_of_polkits_for_this_unit_lets_a_user_restart_it_without_sudo(rig: Rig) -> None:
    rig.unit("a-polkit.service", unit_text("apolkit"))
    rule = """polkit.addRule(function(action, subject) {
        if (action.id == "org.freedesktop.systemd1.manage-units" && action.lookup("unit") == "a-polkit.service"
            && subject.user == "looker") { return polkit.Result.YES; } });"""
    rig.write("/etc/polkit-1/rules.d/10-b2.rules", rule)
    rig.host.exec("systemctl", "restart", "polkit.service")
    try:
        service = rig.service("a-polkit", user="looker")
        assert (await service.privileges()).control.allowed is None, "a rule for one unit is only known when it is tried"
        await service.restart()
        assert (await service.state()).state is RunState.RUNNING
    finally:
        rig.host.exec("sh", "-c", "rm /etc/polkit-1/rules.d/10-b2.rules; systemctl restart polkit.service")


async def test_a_rule_of_sudos_for_one_command_is_enough_for_that_command(rig: Rig) -> None:
    rig.unit("a-rule.service", unit_text("arule"))
    service = rig.service("a-rule", user="ruled")
    assert (await service.privileges()).control.allowed
    await service.restart()
    assert (await service.state()).state is RunState.RUNNING
