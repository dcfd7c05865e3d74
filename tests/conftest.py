"""Settings for all tests."""

from __future__ import annotations

import os
from collections.abc import Generator

import pluggy
import pytest
from hypothesis import HealthCheck, settings

# How long one example takes says how busy the machine is, and nothing about the code: on two shared cores, a deadline fails
# tests at random. Whole tests have pytest's timeout.
settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")


HOST_FIXTURES = frozenset({"testhost", "boot_host"})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests on real hosts wait most of the time, so they run in a lane of their own (``-m realhost``)."""
    for item in items:
        if HOST_FIXTURES & set(getattr(item, "fixturenames", ())) or "tests/faults/" in item.path.as_posix():
            item.add_marker("realhost")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pluggy.Result[pytest.TestReport]]:
    """Where CI runs, everything that tests need is there: a skipped test would hide that it is not."""
    report = (yield).get_result()
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, and CI skips nothing: {report.longrepr}"
