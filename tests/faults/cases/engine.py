"""Engines that die, hang, ignore, lie."""

from __future__ import annotations

import time
from dataclasses import replace

from dflash_console.apply import Verdict

from ..console import Ended
from ..records import Old, Setup, Where, fault
from ..scene import SECRET, Scene

OLD_LINE = (
    "[2026-07-11 02:00:11 TP0] Initialized DDTREE draft runner. attention_backend=fa3, model=DFlashDraftModel, block_size=8, "
    "tree_budget=16, tree_topk=4, layers_window=512, draft_window_size=512, compact_cache=True"
)


def engine(
    name: str,
    story: str,
    verdict: Verdict | tuple[Verdict, ...],
    *words: str,
    faults: str,
    old: Old = Old.RESTORABLE,
    apply: tuple[str, ...] = (),
    setup: Setup | None = None,
    quick: bool = False,
) -> None:
    """Declare a fault that is in the engine alone: the change is applied, and nothing else is done."""

    async def run(scene: Scene) -> Ended:
        return await scene.console.apply(*apply)

    fault(name, Where.ENGINE, story, verdict, *words, old=old, setup=replace(setup or Setup(), faults=faults), quick=quick)(run)


engine(
    "engine-exits-at-once",
    "the new configuration makes the engine end with a traceback",
    Verdict.PROCESS_DIED,
    "no kernel image",
    faults="16=exit",
)
engine(
    "engine-exits-rolled-back",
    "the same, with --rollback-on-failure",
    Verdict.PROCESS_DIED,
    "no kernel image",
    "rolled back",
    faults="16=exit",
    old=Old.RESTORED,
    apply=("--rollback-on-failure",),
    quick=True,
)
engine(
    "engine-broken-drafter",
    "the drafter cannot be loaded, after the target's weights",
    Verdict.PROCESS_DIED,
    "config.json has no block_size",
    faults="16=broken-drafter",
)
engine(
    "engine-ignores-the-flag",
    "the engine starts well and takes no notice of the flag of the compact draft cache",
    Verdict.OTHER_VALUE,
    "compact draft cache is off, not 512",
    faults="16=ignore-flag",
    quick=True,
)
engine(
    "engine-ignores-rolled-back",
    "the same, with --rollback-on-failure",
    Verdict.OTHER_VALUE,
    "rolled back",
    faults="16=ignore-flag",
    old=Old.RESTORED,
    apply=("--rollback-on-failure",),
)
engine(
    "engine-logs-one-computes-another",
    "the log has the wanted compact draft cache, the engine's report another",
    Verdict.OTHER_VALUE,
    "off, not 512",
    faults="16=server-differs",
)
engine(
    "engine-echoes-flags",
    "a foreign engine echoes its flags and prints no confirmation line",
    Verdict.NO_LINE,
    "no line of this start",
    faults="16=foreign;16=no-line",
)
engine(
    "engine-answers-errors",
    "ready, and every prompt is answered with status 500",
    Verdict.BAD_ANSWER,
    "illegal memory access",
    faults="16=bad-answer",
)
engine(
    "engine-answers-garbage",
    "ready, and every prompt is answered with a web page",
    Verdict.BAD_ANSWER,
    faults="16=garbage",
    quick=True,
)
engine(
    "engine-answers-no-tokens",
    "ready, and every prompt is answered with status 200 and no token",
    Verdict.BAD_ANSWER,
    faults="16=no-tokens",
)
engine(
    "engine-dies-after-ready",
    "ready, and dead a tenth of a second later",
    (Verdict.PROCESS_DIED, Verdict.BAD_ANSWER),
    faults="16=die-after-ready",
)
engine(
    "engine-hangs-before-ready",
    "the graphs are never done",
    Verdict.TIMED_OUT,
    "while waiting for ready",
    faults="16=hang",
    setup=Setup(ready_timeout_s=8),
)
engine(
    "engine-ignores-sigterm",
    "the old engine does not end on SIGTERM; systemd kills it after 5 s",
    Verdict.CONFIRMED,
    faults="8=ignore-term",
)
engine(
    "engine-old-start-says-it",
    "the old engine prints the wanted line while it ends, the new one prints none",
    Verdict.NO_LINE,
    faults="8=parting-line;16=foreign;16=no-line",
)


@fault(
    "engine-prints-older-line",
    Where.ENGINE,
    "this start first shows the log of an older start, which had the wanted values",
    Verdict.OTHER_VALUE,
    "not 512",
    setup=Setup(faults="16=ignore-flag", service=("ExecStartPre=-/bin/cat /var/log/older-start.log",)),
)
async def prints_older_line(scene: Scene) -> Ended:
    scene.write("/var/log/older-start.log", OLD_LINE + "\n")
    return await scene.console.apply()


@fault(
    "engine-replays-older-start",
    Where.ENGINE,
    "this start first shows an older start's whole log, of the same day and with its ready line, and then ignores the flag",
    Verdict.OTHER_VALUE,
    "not 512",
    setup=Setup(faults="16=ignore-flag", service=("ExecStartPre=-/bin/cat /var/log/older-start.log",)),
)
async def replays_older_start(scene: Scene) -> Ended:
    stamp = time.strftime("[%Y-%m-%d %H:%M:%S]", time.gmtime(time.time() - 3_840))
    line = OLD_LINE.partition("] ")[2]
    scene.write("/var/log/older-start.log", f"{stamp} {line}\n{stamp} The server is fired up and ready to roll!\n")
    return await scene.console.apply()


@fault(
    "engine-older-line-foreign",
    Where.ENGINE,
    "the same with a foreign engine that prints no line of its own",
    (Verdict.NO_LINE, Verdict.UNKNOWN),
    setup=Setup(faults="16=foreign;16=no-line", service=("ExecStartPre=-/bin/cat /var/log/older-start.log",)),
)
async def older_line_foreign(scene: Scene) -> Ended:
    scene.write("/var/log/older-start.log", OLD_LINE + "\n")
    return await scene.console.apply()


@fault(
    "engine-roll-back-fails-too",
    Where.ENGINE,
    "the new start dies, and by then the engine's program is gone",
    Verdict.ROLLBACK_FAILED,
    "no kernel image",
    "roll-back failed",
    # The file is back; what cannot run is the engine that it names.
    old=(Old.IN_PLACE, Old.RESTORABLE),
    setup=Setup(faults="16=exit"),
)
async def roll_back_fails(scene: Scene) -> Ended:
    running = await scene.console.apply_until("restart", "--rollback-on-failure", status="running")
    await scene.wait_for(
        lambda: "no kernel image" in scene.exec("journalctl", "--no-pager", "-u", scene.unit), "the new start died"
    )
    scene.exec("mv", "/opt/engine", "/opt/gone")
    scene.on_heal(lambda: scene.exec("mv", "/opt/gone", "/opt/engine"))
    return await running.end()


@fault(
    "engine-in-a-shell-string",
    Where.ENGINE,
    "the engine is started by bash -c '…; exec …', and dies with the new settings",
    Verdict.PROCESS_DIED,
    "no kernel image",
    old=Old.RESTORED,
    setup=Setup(faults="16=exit", wrapped="ulimit -n 4096; exec ENGINE"),
)
async def in_a_shell_string(scene: Scene) -> Ended:
    assert SECRET in " ".join(scene.before.loaded)
    return await scene.console.apply("--rollback-on-failure")
