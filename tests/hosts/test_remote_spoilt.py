"""A unit on a real host that systemd does not load, or that was damaged by hand: the last kept configuration comes back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from dflash_console.apply import (
    Verdict,
    apply_plan,
    carry_out_roll_back,
    pending_operations,
    plan_roll_back,
    start_service,
    stop_service,
)
from dflash_console.config import Config
from dflash_console.hosts.service import RunState
from dflash_console.plan import Change, Mode, PlanError
from dflash_console.session import HostSession, NoSuchUnit, open_session

from .remote_rig import DROP_IN, UNIT, UNIT_FILE, WAITS, Remote, cut_off_at, remote
from .sessions import paths_under, planned_roll_back, said

__all__ = ["remote"]
pytestmark = pytest.mark.slow

KEPT = f"/var/lib/ddtree-console/{UNIT}"
EDITOR = "[Service]\n# somebody's key: geheim-1234\nExecStart=/usr/bin/python3 \"unclosed\n"


async def confirmed_with_16(remote: Remote, session: HostSession) -> str:
    """A running engine with a tree budget of 16, written into the console's drop-in; the drop-in's text."""
    assert (await start_service(session, timeouts=WAITS)).confirmed
    plan = await session.plan(Change({"tree_budget": 16}, Mode.RESTART))
    assert (await apply_plan(session, plan, timeouts=WAITS)).confirmed
    text = remote.text(DROP_IN)
    assert text is not None
    return text


def kept_texts(remote: Remote) -> list[str | None]:
    """What operations have replaced, the newest last."""
    names = remote.host.exec("sh", "-c", f"ls {KEPT}/*.before").stdout.decode().split()
    return [text for name in names for text in json.loads(remote.text(name) or "{}").values()]


def damage_unit(remote: Remote) -> None:
    remote.write(UNIT_FILE, EDITOR)


def remove_unit(remote: Remote) -> None:
    remote.host.path(UNIT_FILE).unlink()


def empty_unit(remote: Remote) -> None:
    remote.write(UNIT_FILE, "")


def cut_header(remote: Remote) -> None:
    text = remote.text(UNIT_FILE)
    assert text is not None
    remote.write(UNIT_FILE, text.replace("[Service]", "[Servi"))


def mask_unit(remote: Remote) -> None:
    remote.host.exec("sh", "-c", f"rm {UNIT_FILE}; systemctl mask {UNIT}")


def damage_drop_in(remote: Remote) -> None:
    remote.write(DROP_IN, "[Service]\nExecStart=\n")


def start_something_else(remote: Remote) -> None:
    remote.write(DROP_IN, "[Service]\nExecStart=\nExecStart=/bin/sleep 1000\n")


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
@pytest.mark.parametrize(
    ("damage", "load", "reason"),
    [
        (damage_unit, "bad-setting", "cannot be read"),
        (cut_header, "error", "no section header"),
        (empty_unit, "masked", "which masks the unit, and puts the kept unit file there"),
        (mask_unit, "masked", "which masks the unit, and puts the kept unit file there"),
        (remove_unit, "not-found", f"{UNIT_FILE} is not there, and is written again"),
        (damage_drop_in, "bad-setting", "no ExecStart="),
        (start_something_else, "loaded", "no engine"),
    ],
)
async def test_it_gives_way_to_what_was_confirmed_last(
    damage: Callable[[Remote], None], load: str, reason: str, stopped: bool, remote: Remote
) -> None:
    remote.install("--api-key", "sk-very-secret")
    remote.host.path(UNIT_FILE).chmod(0o640)
    unit = remote.text(UNIT_FILE)
    async with remote.session() as session:
        drop_in = await confirmed_with_16(remote, session)
        if stopped:
            assert (await stop_service(session, timeouts=WAITS)).confirmed
        damage(remote)
        remote.host.exec("systemctl", "daemon-reload")
        assert remote.shown("LoadState") == load
        spoilt = (remote.text(UNIT_FILE), remote.text(DROP_IN))
        plan = await planned_roll_back(session)
        assert (remote.text(UNIT_FILE), remote.text(DROP_IN)) == spoilt, "a plan changes nothing"
        assert "goes back to the configuration that was confirmed on" in said(plan)
        assert reason in said(plan)
        assert "sk-very-secret" not in plan.diff + said(plan)
        assert "geheim-1234" not in plan.diff + said(plan)
        result = await carry_out_roll_back(session, plan, timeouts=WAITS)
        assert (result.verdict, result.rolled_back) == (Verdict.CONFIRMED, True), result.reason
        assert "tree budget 16 (log line" in result.reason
        assert (remote.text(UNIT_FILE), remote.text(DROP_IN)) == (unit, drop_in)
        assert not remote.host.path(UNIT_FILE).is_symlink()
        assert remote.host.path(UNIT_FILE).stat().st_mode & 0o777 == 0o640
        assert remote.shown("LoadState") == "loaded"
        assert remote.host.exec("stat", "-c", "%F", "/dev/null").stdout.strip() == b"character special file"
        state = await session.service.state()
        assert state.state is RunState.RUNNING
        assert all(text in kept_texts(remote) for text, whole in zip(spoilt, (unit, drop_in), strict=True) if text != whole)


async def test_a_unit_that_is_gone_is_opened_where_something_is_kept_of_it(remote: Remote) -> None:
    remote.install()
    async with remote.session() as session:
        drop_in = await confirmed_with_16(remote, session)
        assert (await stop_service(session, timeouts=WAITS)).confirmed
    remove_unit(remote)
    remote.host.exec("systemctl", "daemon-reload")
    with pytest.raises(NoSuchUnit, match=f"configurations of {UNIT} are kept there; name one with --unit"):
        await open_session("gpu", config=Config(), paths=paths_under(remote.folder / "other"))
    async with remote.session("other") as session:
        assert (await session.service.state()).state is RunState.MISSING
        result = await carry_out_roll_back(session, await planned_roll_back(session), timeouts=WAITS)
        assert result.confirmed, result.reason
        assert remote.text(DROP_IN) == drop_in


async def test_where_nothing_is_kept_that_is_said_and_nothing_is_touched(remote: Remote) -> None:
    remote.install()
    damage_unit(remote)
    remote.host.exec("systemctl", "daemon-reload")
    async with remote.session() as session:
        with pytest.raises(
            PlanError, match=r"a quote in it is not closed.*no configuration is kept to go back to.*mended by hand"
        ):
            await plan_roll_back(session)
    remote.host.exec("rm", UNIT_FILE)
    remote.host.exec("systemctl", "daemon-reload")
    with pytest.raises(NoSuchUnit, match=f"has no unit called {UNIT}"):
        async with remote.session():
            pass


async def test_what_came_since_is_removed_only_where_the_kept_configuration_does_not_work_beside_it(remote: Remote) -> None:
    harmless, winning = f"{UNIT_FILE}.d/limits.conf", f"{UNIT_FILE}.d/zzz.conf"
    remote.install()
    async with remote.session() as session:
        drop_in = await confirmed_with_16(remote, session)
        remote.write(harmless, "[Service]\nLimitNOFILE=4096\n")
        damage_drop_in(remote)
        plan = await planned_roll_back(session)
        assert [edit.path for edit in plan.edits] == [DROP_IN]
        remote.write(DROP_IN, drop_in)
        remote.write(winning, "[Service]\nExecStart=\nExecStart=/bin/sleep 1000\n")
        plan = await planned_roll_back(session)
        assert {edit.path: edit.new for edit in plan.edits} == {winning: None}
        assert f"removes {winning}, which came since; its text is kept" in said(plan)
        result = await carry_out_roll_back(session, plan, timeouts=WAITS)
        assert result.confirmed, result.reason
        assert "[Service]\nExecStart=\nExecStart=/bin/sleep 1000\n" in kept_texts(remote)
        assert remote.text(harmless) is not None


async def test_a_file_that_is_no_text_gives_way_too_and_its_bytes_are_kept(remote: Remote) -> None:
    remote.install()
    unit = remote.text(UNIT_FILE)
    async with remote.session() as session:
        await confirmed_with_16(remote, session)
        remote.host.path(UNIT_FILE).write_bytes(b"\xff\xfe[Serv\0\n")
        remote.host.exec("systemctl", "daemon-reload")
        result = await carry_out_roll_back(session, await planned_roll_back(session), timeouts=WAITS)
        assert result.confirmed, result.reason
        assert remote.text(UNIT_FILE) == unit
        kept = remote.host.exec("sh", "-c", f"cat {KEPT}/{result.operation_id}.0.bytes").stdout
        assert kept == b"\xff\xfe[Serv\0\n"


async def test_bytes_that_are_no_text_and_were_replaced_are_never_said_to_be_back(remote: Remote) -> None:
    remote.install()
    async with remote.session() as session:
        await confirmed_with_16(remote, session)
        remote.host.path(UNIT_FILE).write_bytes(b"\xff\xfe[Serv\n")
        plan = await planned_roll_back(session)
        (edit,) = [edit for edit in plan.edits if edit.path == UNIT_FILE]
        assert edit.new is not None
        broken = replace(edit, new=edit.new.replace("[Service]\n", "[Service]\nNoSuchSetting=1\n"))
        others = [edit for edit in plan.edits if edit.path != UNIT_FILE]
        result = await carry_out_roll_back(session, replace(plan, edits=(broken, *others)), timeouts=WAITS)
        assert result.verdict is Verdict.ROLLBACK_FAILED
        assert f"{UNIT_FILE} held bytes that are no UTF-8, so it stays as it is now; they are in {KEPT}" in result.reason
        assert remote.text(UNIT_FILE) == broken.new


async def test_a_change_that_was_cut_off_does_not_keep_a_spoilt_unit_from_its_way_back(remote: Remote) -> None:
    remote.install()
    async with remote.session() as session:
        await confirmed_with_16(remote, session)
        plan = await session.plan(Change({"tree_budget": 24}, Mode.RESTART))
        await cut_off_at(session, plan, "write")
        damage_unit(remote)
        plan = await planned_roll_back(session)
        assert "it is not undone by itself" in said(plan)
        assert "was cut off " in said(plan)
        result = await carry_out_roll_back(session, plan, timeouts=WAITS)
        assert result.confirmed, result.reason
        assert "tree budget 16 (log line" in result.reason
        assert pending_operations(session.paths) == ()


async def test_a_unit_file_that_lost_its_command_under_the_drop_in_comes_back_with_the_configuration_before(
    remote: Remote,
) -> None:
    remote.install()
    unit = remote.text(UNIT_FILE)
    async with remote.session() as session:
        await confirmed_with_16(remote, session)
        remote.write(UNIT_FILE, "[Service]\n")
        remote.host.exec("systemctl", "daemon-reload")
        assert remote.shown("LoadState") == "loaded", "the drop-in has a command of its own"
        plan = await planned_roll_back(session)
        assert "no ExecStart=" in said(plan)
        result = await carry_out_roll_back(session, plan, timeouts=WAITS)
        assert (result.verdict, result.rolled_back) == (Verdict.CONFIRMED, True), result.reason
        assert "tree budget 8 (log line" in result.reason
        assert (remote.text(UNIT_FILE), remote.text(DROP_IN)) == (unit, None)


async def test_an_environment_file_that_is_gone_is_written_again_as_private_as_it_was(remote: Remote) -> None:
    remote.write("/etc/default/engine", "BUDGET=8\nHF_TOKEN=hf_very_secret\n")
    remote.host.path("/etc/default/engine").chmod(0o600)
    remote.install(service=("EnvironmentFile=/etc/default/engine",))
    remote.edit_unit("--speculative-ddtree-budget 8", "--speculative-ddtree-budget ${BUDGET}")
    remote.host.exec("systemctl", "daemon-reload")
    async with remote.session() as session:
        assert (await start_service(session, timeouts=WAITS)).confirmed
        remote.host.exec("rm", "/etc/default/engine")
        plan = await planned_roll_back(session)
        assert "/etc/default/engine is not there, and is written again" in said(plan)
        assert "hf_very_secret" not in plan.diff
        assert (await carry_out_roll_back(session, plan, timeouts=WAITS)).confirmed
        assert remote.text("/etc/default/engine") == "BUDGET=8\nHF_TOKEN=hf_very_secret\n"
        assert remote.host.path("/etc/default/engine").stat().st_mode & 0o777 == 0o600


async def test_what_was_never_confirmed_goes_back_to_what_was_before_the_change(remote: Remote) -> None:
    remote.install(faults="16=exit")
    unit = remote.text(UNIT_FILE)
    async with remote.session() as session:
        plan = await session.plan(Change({"tree_budget": 16}, Mode.RESTART))
        assert not (await apply_plan(session, plan, timeouts=WAITS)).confirmed
        damage_drop_in(remote)
        plan = await planned_roll_back(session)
        assert "goes back to the configuration before the last change" in said(plan)
        assert {edit.path: edit.new for edit in plan.edits} == {DROP_IN: None}
        assert (await carry_out_roll_back(session, plan, timeouts=WAITS)).confirmed
        assert remote.text(UNIT_FILE) == unit
