"""Commit-confirm: the host goes back by itself when nobody confirms in time, and does not when somebody did."""

from __future__ import annotations

from dflash_console.apply import Verdict

from ..console import Ended, Missed
from ..judging import difference, runs_old
from ..records import Old, Setup, Where, fault
from ..scene import Scene
from .console import killed_at

PATIENCE_S = 200.0
"""For the timer, which waits well beyond what a start takes."""
TIMER = "ddtree-rollback-"


@fault(
    "commit-confirm-called-off",
    Where.CONSOLE,
    "nothing is broken: the change is confirmed and the timer on the host called off",
    Verdict.CONFIRMED,
)
async def called_off(scene: Scene) -> Ended:
    ended = await scene.console.apply("--commit-confirm")
    assert not armed(scene), "the timer is still there"
    return ended


@fault(
    "commit-confirm-laptop-gone",
    Where.CONSOLE,
    "SIGKILL in the middle of the start; the timer on the host puts the old configuration back, and the next console says so",
    Verdict.CANCELLED,
    "timer",
    old=Old.RESTORED,
    setup=Setup(faults="16=slow"),
)
async def laptop_gone(scene: Scene) -> Ended:
    await killed_at(scene, "process up", words=("--commit-confirm",))
    assert armed(scene), "no timer is armed"
    await put_back(scene)
    return await scene.console.run("apply", "--resume", "--yes")


@fault(
    "commit-confirm-link-gone",
    Where.CONSOLE,
    "the link is cut at the restart and stays dead; the timer on the host puts the old configuration back",
    Verdict.LINK_DOWN,
    "link",
    old=Old.IN_PLACE,
    setup=Setup(faults="16=slow", ready_timeout_s=20),
)
async def link_gone(scene: Scene) -> Ended:
    running = await scene.console.apply_until("restart", "--commit-confirm", status="running")
    scene.host.cut()
    scene.on_heal(scene.host.heal)
    ended = await running.end(PATIENCE_S)
    await put_back(scene)
    return ended


@fault(
    "commit-confirm-engine-hangs",
    Where.CONSOLE,
    "the new engine never gets ready, and the console would wait longer than the timer does",
    (Verdict.TIMED_OUT, Verdict.PROCESS_DIED),
    "timer",
    old=(Old.IN_PLACE, Old.RESTORED),
    setup=Setup(faults="16=hang", ready_timeout_s=170),
)
async def engine_hangs(scene: Scene) -> Ended:
    running = await scene.console.start_apply("--commit-confirm")
    ended = await running.end(PATIENCE_S)
    await put_back(scene)
    return ended


@fault(
    "commit-confirm-rebooted",
    Where.CONSOLE,
    "SIGKILL in the middle of the start, and the host is rebooted; its timer comes back and puts the old configuration back",
    Verdict.CANCELLED,
    "timer",
    old=Old.RESTORED,
    setup=Setup(faults="16=slow", install=True),
)
async def rebooted(scene: Scene) -> Ended:
    await killed_at(scene, "process up", words=("--commit-confirm",))
    scene.host.reboot(at_once=True)
    assert armed(scene), "the timer did not outlive the reboot"
    await put_back(scene)
    return await scene.console.run("apply", "--resume", "--yes")


@fault(
    "commit-confirm-cannot-be-called-off",
    Where.CONSOLE,
    "the change is confirmed, and the timer's files can neither be renamed nor removed",
    (Verdict.NOT_READY, Verdict.TIMED_OUT, Verdict.ROLLBACK_FAILED),
    "called off|timer",
    old=(Old.IN_PLACE, Old.RESTORED, Old.RESTORABLE),
)
async def not_called_off(scene: Scene) -> Ended:
    for program, spared in (("mv", ".armed"), ("rm", ".sh ")):
        scene.pretend(program, f'case "$*" in *"{spared}"*) echo "Input/output error" >&2; exit 1;; esac\nexec REAL "$@"')
    return await scene.console.apply("--commit-confirm")


def armed(scene: Scene) -> bool:
    return TIMER in scene.exec("systemctl", "list-timers", "--all", "--no-pager")


async def put_back(scene: Scene) -> None:
    """Wait until the host has gone back by itself. Raises: Missed."""
    try:
        await scene.wait_for(lambda: difference(scene) == "" and runs_old(scene), "the host has gone back", PATIENCE_S)
    except Missed as missed:
        raise Missed(f"{missed}: {difference(scene) or 'the old command does not run'}") from None
