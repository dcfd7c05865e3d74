"""A script that starts the engine: the engine behind it is found, asked, restarted and confirmed; its flags stay the script's."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from dflash_console.apply import Verdict, apply_plan
from dflash_console.drift import truth_table
from dflash_console.evidence.reading import Known, Reading
from dflash_console.hosts.unit_file import new_unit_file
from dflash_console.hosts.wrapped import engine_argv
from dflash_console.knobs import Source
from dflash_console.plan import Change, Mode, PlanError
from dflash_console.session import HostSession

from .conftest import MakeUnit, Unit
from .other_engines import another_engine, give_up_port
from .sessions import FAST, session_on, started


def wrapped(unit: Unit, tmp_path: Path, how: str) -> None:
    """Put a script in the place of the unit's command; ``how`` it starts the engine."""
    engine = f"{sys.executable} -I {tmp_path / 'ddtree-launch'} serve --speculative-ddtree-budget 8 --port {unit.port}"
    script = tmp_path / "start.sh"
    script.write_text(f"#!/bin/bash\nsleep 0.3\n{how.format(engine=engine)}\n")
    unit.file.write_text(new_unit_file(["/bin/bash", str(script)], description="wrapped"))


def child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


async def seen(session: HostSession) -> Mapping[Source, Reading]:
    """What is known of the budget, once the watcher has looked behind the script."""
    async with asyncio.timeout(40):
        while True:
            await session.watcher.refresh()
            row = truth_table(session.watcher.state).row("tree_budget")
            assert row is not None
            if row.readings[Source.PROCESS].known is Known.VALUE:
                return row.readings
            await asyncio.sleep(0.2)


@pytest.mark.parametrize("how", ["exec {engine}", "{engine}", "{engine} & wait", "( cd / && {engine} ) 2>&1 | cat"])
async def test_an_engine_that_a_script_starts_is_seen_and_its_restart_confirmed(
    make_unit: MakeUnit, tmp_path: Path, how: str
) -> None:
    wrapped(make_unit(), tmp_path, how)
    async with session_on(tmp_path) as session:
        await started(session)
        readings = await seen(session)
        assert (readings[Source.PROCESS].value, readings[Source.UNIT].known) == (8, Known.UNKNOWN)
        result = await apply_plan(session, await session.plan(Change({}, Mode.RESTART)), timeouts=FAST)
        assert result.verdict is Verdict.CONFIRMED, result.reason
        with pytest.raises(PlanError, match=r"the flags live in .*start\.sh"):
            await session.plan(Change({"tree_budget": 16}, Mode.RESTART))


async def test_another_program_on_the_port_of_such_an_engine_is_not_taken_for_it(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit()
    wrapped(unit, tmp_path, "{engine}")
    async with session_on(tmp_path) as session:
        await started(session)
        await seen(session)
        main_pid = (await session.service.state()).main_pid
        assert main_pid is not None
        assert (await engine_argv(session.transport, main_pid))[-2:] == ("--port", str(unit.port))
        give_up_port(child_of(main_pid), unit.port)
        with another_engine(unit.port, 4):
            async with asyncio.timeout(40):
                while session.watcher.state.stranger is None:
                    await session.watcher.refresh()
                    await asyncio.sleep(0.2)
            assert not session.watcher.state.ready
