"""The quick ones among the faults, by the same records as ``make faults``."""

from __future__ import annotations

import pytest

from tests.testhost import missing_requirements

from . import cases
from .judging import run_fault
from .records import REGISTRY, Fault

assert cases.__all__
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.mark.parametrize("fault", [pytest.param(fault, id=fault.name) for fault in REGISTRY.faults.values() if fault.quick])
async def test_the_verdict_is_right_and_the_old_configuration_is_not_lost(fault: Fault) -> None:
    if reason := missing_requirements():
        pytest.skip(reason)
    outcome = await run_fault(fault)
    assert outcome.passed, "\n".join([*outcome.problems, f"it said: {outcome.reason}"])
