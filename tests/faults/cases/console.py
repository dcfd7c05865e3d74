"""Consoles that are killed, doubled, without a disk, with a wrong clock."""

from __future__ import annotations

import signal

from dflash_console.apply import Verdict

from ..console import Ended
from ..records import NOT_BEGUN, Old, Setup, Where, fault
from ..scene import Scene

STAGES = (
    "checks",
    "backup",
    "write",
    "verify unit",
    "reload",
    "restart",
    "process up",
    "draft runner",
    "ready",
    "prompt",
    "truth",
)
BEFORE_THE_WRITE = ("checks", "backup")
HOLD = "/run/hold"
HELD = Setup(service=(f"ExecStartPre=/bin/sh -c 'while [ -e {HOLD} ]; do sleep 0.1; done'",))
"""A start that waits as long as the test does."""
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"


async def killed_at(scene: Scene, stage: str, number: signal.Signals = signal.SIGKILL, words: tuple[str, ...] = ()) -> Ended:
    """Apply, and send the console a signal while the stage runs."""
    running = await scene.console.apply_until(stage, *words, status="running")
    running.kill(number)
    return await running.end()


def declare(stage: str) -> None:
    """Two faults for one stage: killed there and resumed, killed there and rolled back."""
    early = stage in BEFORE_THE_WRITE
    name = stage.replace(" ", "-")

    # The kill may come a moment late, when the stage is over.
    @fault(
        f"console-killed-at-{name}-resumed",
        Where.CONSOLE,
        f"SIGKILL during '{stage}'; the next console goes on with --resume",
        (Verdict.CANCELLED, Verdict.CONFIRMED) if early or stage == "write" else (Verdict.CONFIRMED,),
        old=(Old.IN_PLACE, Old.RESTORABLE) if early or stage == "write" else Old.RESTORABLE,
        setup=Setup(faults="16=slow"),
        quick=stage == "restart",
    )
    async def resumed(scene: Scene) -> Ended:
        await killed_at(scene, stage)
        return await scene.console.run("apply", "--resume", "--yes")

    @fault(
        f"console-killed-at-{name}-rolled-back",
        Where.CONSOLE,
        f"SIGKILL during '{stage}'; the next console rolls back",
        (Verdict.CANCELLED, Verdict.CONFIRMED) if early or stage == "write" else (Verdict.CONFIRMED,),
        old=(Old.IN_PLACE, Old.RESTORED) if early or stage == "write" else Old.RESTORED,
        setup=Setup(faults="16=slow"),
    )
    async def rolled_back(scene: Scene) -> Ended:
        await killed_at(scene, stage)
        return await scene.console.run("rollback", "--yes")


for _stage in STAGES:
    declare(_stage)


@fault(
    "console-interrupted",
    Where.CONSOLE,
    "Ctrl-C in the middle of the start; the next console resumes",
    Verdict.CONFIRMED,
    setup=Setup(faults="16=slow"),
)
async def interrupted(scene: Scene) -> Ended:
    ended = await killed_at(scene, "process up", signal.SIGINT)
    assert ended.code == 4, ended
    assert "interrupted" in ended.err, ended.err
    return await scene.console.run("apply", "--resume", "--yes")


@fault(
    "console-hung-up",
    Where.CONSOLE,
    "the terminal goes away in the middle of the start; the next console resumes",
    Verdict.CONFIRMED,
    setup=Setup(faults="16=slow"),
)
async def hung_up(scene: Scene) -> Ended:
    await killed_at(scene, "process up", signal.SIGHUP)
    return await scene.console.run("apply", "--resume", "--yes")


@fault(
    "console-two-at-once",
    Where.CONSOLE,
    "a second console applies to the same unit meanwhile",
    Verdict.REFUSED,
    "apply by",
    old=Old.IN_PLACE,
    setup=HELD,
    quick=True,
)
async def two_at_once(scene: Scene) -> Ended:
    return await meanwhile(scene, "apply", "--set=tree_budget=32", "--restart", "--yes")


@fault(
    "console-two-roll-back",
    Where.CONSOLE,
    "a second console rolls back while the first applies",
    (Verdict.REFUSED, NOT_BEGUN),
    "apply by",
    old=Old.IN_PLACE,
    setup=HELD,
)
async def two_roll_back(scene: Scene) -> Ended:
    return await meanwhile(scene, "rollback", "--yes")


async def meanwhile(scene: Scene, *words: str) -> Ended:
    """Run a second console while the first waits for its start; what the first confirmed is the old configuration then."""
    scene.exec("touch", HOLD)
    first = await scene.console.apply_until("restart", status="running")
    other = scene.another_console()
    try:
        second = await other.run(*words)
    finally:
        scene.exec("rm", HOLD)
    ended = await first.end()
    assert ended.code == 0, f"the first was disturbed: {ended.out}"
    scene.note_old()
    return second


@fault(
    "console-clock-an-hour-ahead",
    Where.CONSOLE,
    "this machine's clock is an hour ahead of the host's",
    Verdict.CONFIRMED,
)
async def clock_ahead(scene: Scene) -> Ended:
    return await with_clock(scene, "+1h")


@fault("console-clock-an-hour-behind", Where.CONSOLE, "this machine's clock is an hour behind the host's", Verdict.CONFIRMED)
async def clock_behind(scene: Scene) -> Ended:
    return await with_clock(scene, "-1h")


@fault(
    "console-clock-wrong-and-line-old",
    Where.CONSOLE,
    "an hour behind, and an earlier start printed the wanted line",
    (Verdict.NO_LINE, Verdict.UNKNOWN),
    setup=Setup(faults="8=parting-line;*=foreign;16=no-line"),
)
async def clock_behind_old_line(scene: Scene) -> Ended:
    return await with_clock(scene, "-1h")


@fault(
    "console-disk-full",
    Where.CONSOLE,
    "this machine cannot write the operation's journal",
    Verdict.REFUSED,
    "journal",
    old=Old.IN_PLACE,
)
async def disk_full(scene: Scene) -> Ended:
    operations = scene.console.state / "state/operations"
    operations.rename(operations.with_name("operations.aside"))
    operations.write_text("in the way")

    def back() -> None:
        operations.unlink()
        operations.with_name("operations.aside").rename(operations)

    scene.on_heal(back)
    return await scene.console.apply()


@fault(
    "console-read-only",
    Where.CONSOLE,
    "nothing is broken: the console was told to change nothing",
    NOT_BEGUN,
    "read-only",
    old=Old.IN_PLACE,
)
async def read_only(scene: Scene) -> Ended:
    return await scene.console.apply("--read-only")


@fault(
    "console-laptop-lost",
    Where.CONSOLE,
    "SIGKILL in the middle of the start, and the machine is lost; a colleague rolls back from another one",
    Verdict.CONFIRMED,
    old=Old.RESTORED,
    setup=Setup(faults="16=slow"),
)
async def laptop_lost(scene: Scene) -> Ended:
    await killed_at(scene, "process up")
    scene.console = scene.another_console()
    return await scene.console.run("rollback", "--yes")


@fault(
    "console-laptop-lost-at-the-write",
    Where.CONSOLE,
    "the same, between the write and the restart",
    Verdict.CONFIRMED,
    old=(Old.RESTORED, Old.IN_PLACE),
)
async def laptop_lost_at_write(scene: Scene) -> Ended:
    await killed_at(scene, "reload")
    scene.console = scene.another_console()
    return await scene.console.run("rollback", "--yes")


async def with_clock(scene: Scene, offset: str) -> Ended:
    scene.console.environment = {"LD_PRELOAD": FAKETIME, "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    scene.on_heal(scene.console.environment.clear)
    return await scene.console.apply()
