"""The console's drop-in on a real host when the unit under it changes, and when another file overrides it."""

from __future__ import annotations

import pytest

from dflash_console.apply import apply_plan, plan_rebase, plan_release, start_service
from dflash_console.drift import DriftKind, truth_table
from dflash_console.drift.verdicts import DROP_IN as DROP_IN_ROW
from dflash_console.plan import Change, Mode, PlanError

from .remote_rig import DROP_IN, UNIT_FILE, WAITS, Remote, remote

__all__ = ["remote"]
pytestmark = pytest.mark.slow


async def test_a_unit_that_changed_under_the_drop_in_is_named_and_rebase_carries_the_settings_over(remote: Remote) -> None:
    remote.install()
    async with remote.session() as session:
        assert (await start_service(session, timeouts=WAITS)).confirmed
        with pytest.raises(PlanError, match="nothing to remove"):
            await plan_release(session)
        plan = await session.plan(Change({"tree_budget": 16}, Mode.RESTART))
        assert (await apply_plan(session, plan, timeouts=WAITS)).confirmed
        with pytest.raises(PlanError, match="nothing to carry over"):
            await plan_rebase(session)
        remote.edit_unit("--speculative-ddtree-topk 4", "--speculative-ddtree-topk 2")
        row = truth_table(await session.watcher.refresh()).row(DROP_IN_ROW)
        assert row is not None
        assert row.kind is DriftKind.SHADOWED
        plan = await plan_rebase(session)
        result = await apply_plan(session, plan, timeouts=WAITS, what="rebase")
        assert result.confirmed, result.reason
        text = remote.text(DROP_IN)
        assert text is not None
        assert "--speculative-ddtree-budget 16" in text
        assert "--speculative-ddtree-topk 2" in text
        assert truth_table(await session.watcher.refresh()).drifted == ()
        result = await apply_plan(session, await plan_release(session), timeouts=WAITS, what="release")
        assert result.confirmed, result.reason
        assert remote.text(DROP_IN) is None
        assert "tree budget 8" in result.reason


async def test_another_drop_in_that_wins_is_named_before_anything_is_written_and_as_drift(remote: Remote) -> None:
    remote.install()
    async with remote.session() as session:
        assert (await start_service(session, timeouts=WAITS)).confirmed
        plan = await session.plan(Change({"tree_budget": 16}, Mode.RESTART))
        assert (await apply_plan(session, plan, timeouts=WAITS)).confirmed
        # Of all services, so it is nobody's to edit here; and it sorts after the console's own.
        text = remote.text(UNIT_FILE)
        assert text is not None
        start = next(line for line in text.splitlines() if line.startswith("ExecStart="))
        remote.write("/usr/lib/systemd/system/service.d/zzz-all.conf", f"[Service]\nExecStart=\n{start}\n")
        remote.host.exec("systemctl", "daemon-reload")
        try:
            state = await session.watcher.refresh()
            row = truth_table(state).row(DROP_IN_ROW)
            assert row is not None
            assert row.kind is DriftKind.OVERRIDDEN
            assert "zzz-all.conf" in row.message
            before = remote.text(DROP_IN)
            with pytest.raises(PlanError, match=r"zzz-all\.conf"):
                await session.plan(Change({"tree_budget": 24}, Mode.RESTART))
            assert remote.text(DROP_IN) == before
        finally:
            remote.host.path("/usr/lib/systemd/system/service.d/zzz-all.conf").unlink()
            remote.host.exec("systemctl", "daemon-reload")
