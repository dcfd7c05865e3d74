"""The clock that says where a round's time goes."""

from __future__ import annotations

from itertools import count

from engine_launch.sglang_plugin.stages import StageClock


def test_each_stage_has_the_mean_of_its_time_and_the_device_is_waited_for() -> None:
    waits: list[None] = []
    ticks = count(step=0.25)
    clock = StageClock(lambda: waits.append(None), lambda: next(ticks))
    for _ in range(2):
        clock.begin()
        clock.end("draft")
        clock.end("verify")
        clock.end("verify")
    assert clock.means() == {"draft": 250.0, "verify": 500.0}
    assert len(waits) == 8
    clock.reset()
    assert clock.means() == {}


def test_a_clock_that_does_not_measure_asks_for_nothing() -> None:
    clock = StageClock(None)
    clock.begin()
    clock.end("draft")
    assert not clock.measures
    assert clock.means() == {}
