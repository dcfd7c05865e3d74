"""A stop is always possible, whatever waits to be gone on with."""

from __future__ import annotations

from pathlib import Path

import pytest

from dflash_console.apply import pending_operations, stop_service
from dflash_console.apply.journal import OperationBegin, OperationJournal

from .conftest import MakeUnit
from .sessions import FAST, session_on


@pytest.mark.parametrize(("what", "mode", "left"), [("stop", "stop", 0), ("apply", "hot", 0), ("apply", "restart", 1)])
async def test_a_stop_works_while_an_operation_waits_and_ends_what_it_makes_pointless(
    what: str, mode: str, left: int, make_unit: MakeUnit, tmp_path: Path
) -> None:
    make_unit()
    async with session_on(tmp_path) as session:
        await session.service.start()
        gone = 2**22 + 1  # Above the largest pid that Linux gives.
        begin = OperationBegin("20200101-000000-abcdef", what, session.host, session.unit, mode, 0.0, gone, 1)
        OperationJournal(session.paths.operations / "20200101-000000-abcdef.jsonl").begin(begin)
        assert len(pending_operations(session.paths, session.host, session.unit)) == 1
        result = await stop_service(session, timeouts=FAST)
        assert result.confirmed, result.reason
        assert len(pending_operations(session.paths, session.host, session.unit)) == left
