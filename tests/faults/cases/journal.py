"""Logs that cannot be read, are silent, lose lines, or are no journal at all.

The stand-in is told to be *foreign* where the log alone can prove a value, as with stock SGLang; the embedded engine's own report
proves it as well.
"""

from __future__ import annotations

from dflash_console.apply import Verdict

from ..console import Ended
from ..records import Old, Setup, Where, fault
from ..scene import Scene

FOREIGN = "*=foreign"
TO_FILE = f"{FOREIGN};*=slow"
"""An engine's first line comes a second (the embedded one) or many (SGLang) after its start. The stand-in's comes at once: no
look at the file falls between the old start's last line and the new one's first then, and both are nobody's."""
LOG = "/var/log/engine.log"
HOLD = "/run/hold"
SILENT_LINES = (Verdict.UNKNOWN, Verdict.NO_LINE)


@fault(
    "journal-quiet-log-level",
    Where.JOURNAL,
    "the engine's log level hides the line that would confirm",
    Verdict.UNKNOWN,
    "not confirmable",
    setup=Setup(faults=FOREIGN, flags=("--log-level", "warning"), started=False),
    quick=True,
)
async def quiet(scene: Scene) -> Ended:
    await scene.start_by_hand()
    return await scene.console.apply()


@fault(
    "journal-quiet-but-reported",
    Where.JOURNAL,
    "the same, with an engine that reports what it computed",
    Verdict.CONFIRMED,
    setup=Setup(flags=("--log-level", "warning")),
)
async def quiet_but_reported(scene: Scene) -> Ended:
    return await scene.console.apply()


@fault(
    "journal-unreadable",
    Where.JOURNAL,
    "the user who logs in may change the unit and not read its journal",
    (Verdict.UNKNOWN, Verdict.REFUSED, Verdict.NO_RESTART),
    "journal",
    old=(Old.RESTORABLE, Old.IN_PLACE),
    setup=Setup(faults=FOREIGN, user="ops", started=False),
)
async def unreadable(scene: Scene) -> Ended:
    await scene.start_by_hand()
    scene.write("/etc/sudoers.d/ops", "ops ALL=(ALL) NOPASSWD: ALL, !/usr/bin/journalctl\n", 0o440)
    return await scene.console.apply()


@fault(
    "journal-vacuumed",
    Where.JOURNAL,
    "the journal is vacuumed while the link is cut, and the line that would confirm with it",
    SILENT_LINES,
    setup=Setup(faults=FOREIGN, wrapped=f"while [ -e {HOLD} ]; do sleep 0.1; done; exec ENGINE"),
)
async def vacuumed(scene: Scene) -> Ended:
    scene.exec("touch", HOLD)
    started = await scene.console.apply_until("process up")
    scene.host.cut()
    scene.exec("rm", HOLD)
    try:
        await scene.wait_for(lambda: "fired up" in new_lines(scene), "the new start is ready")
        scene.shell("journalctl --rotate; sleep 1.1; journalctl --vacuum-time=1s")
        assert "draft runner" not in new_lines(scene)
    finally:
        scene.host.heal()
    return await started.end()


@fault(
    "journal-vacuumed-later",
    Where.JOURNAL,
    "the journal is vacuumed once the line was read",
    Verdict.CONFIRMED,
    setup=Setup(faults=f"{FOREIGN};16=slow"),
)
async def vacuumed_later(scene: Scene) -> Ended:
    started = await scene.console.apply_until("process up")
    scene.shell("journalctl --rotate; journalctl --vacuum-time=1us")
    return await started.end()


@fault(
    "journal-restarted",
    Where.JOURNAL,
    "journald is restarted in the middle of the start",
    Verdict.CONFIRMED,
    setup=Setup(faults=f"{FOREIGN};16=slow"),
)
async def journald_restarted(scene: Scene) -> Ended:
    started = await scene.console.apply_until("process up")
    scene.systemctl("restart", "systemd-journald")
    return await started.end()


@fault(
    "journal-hangs",
    Where.JOURNAL,
    "journald is stopped (SIGSTOP), so no line arrives any more",
    (*SILENT_LINES, Verdict.TIMED_OUT),
    setup=Setup(faults=f"{FOREIGN};16=slow", ready_timeout_s=30),
)
async def journald_hangs(scene: Scene) -> Ended:
    started = await scene.console.apply_until("process up")
    pid = scene.shown("MainPID", "systemd-journald")
    scene.exec("kill", "-STOP", pid)
    scene.on_heal(lambda: scene.exec("kill", "-CONT", pid))
    return await started.end()


@fault(
    "journal-late",
    Where.JOURNAL,
    "journald lags, and stores under the new start what the old one prints as it ends: the line that is wanted",
    SILENT_LINES,
    setup=Setup(faults=f"{FOREIGN};8=parting-line;16=no-line;16=slow"),
)
async def journald_lags(scene: Scene) -> Ended:
    pid = scene.shown("MainPID", "systemd-journald")
    started = await scene.console.apply_until("reload")
    scene.exec("kill", "-STOP", pid)
    try:
        await started.reaches("process up")
    finally:
        scene.exec("kill", "-CONT", pid)
    ended = await started.end()
    line = "Initialized DDTREE draft runner"
    assert line in scene.exec("journalctl", "--output=cat", f"_SYSTEMD_INVOCATION_ID={scene.invocation}"), "journald did not lag"
    return ended


@fault(
    "journal-rate-limit",
    Where.JOURNAL,
    "journald drops the line that would confirm: too many lines before it",
    SILENT_LINES,
    setup=Setup(
        faults=FOREIGN, service=("LogRateLimitIntervalSec=60s", "LogRateLimitBurst=40", "ExecStartPre=-/bin/cat /run/flood")
    ),
)
async def rate_limit(scene: Scene) -> Ended:
    scene.shell("yes 'INFO: compiling' | head -n 3000 >/run/flood")
    scene.on_heal(lambda: scene.exec("rm", "/run/flood"))
    return await scene.console.apply()


@fault(
    "journal-append-file",
    Where.JOURNAL,
    "StandardOutput=append: the journal is empty, the lines are in a file",
    Verdict.CONFIRMED,
    "log",
    setup=Setup(faults=TO_FILE, service=(f"StandardOutput=append:{LOG}", f"StandardError=append:{LOG}")),
)
async def append_file(scene: Scene) -> Ended:
    return await scene.console.apply()


@fault(
    "journal-error-file",
    Where.JOURNAL,
    "the engine logs to its error output, which has a file of its own",
    Verdict.CONFIRMED,
    "log",
    setup=Setup(
        faults=TO_FILE,
        wrapped="exec ENGINE 1>&2",
        service=(f"StandardOutput=append:{LOG}", "StandardError=append:/var/log/engine.err"),
    ),
)
async def error_file(scene: Scene) -> Ended:
    return await scene.console.apply()


@fault(
    "journal-of-its-own",
    Where.JOURNAL,
    "LogNamespace=: the unit's lines are in a journal of their own",
    Verdict.CONFIRMED,
    "log",
    setup=Setup(faults=FOREIGN, service=("LogNamespace=engines",)),
)
async def own_journal(scene: Scene) -> Ended:
    return await scene.console.apply()


@fault(
    "journal-append-older-line",
    Where.JOURNAL,
    "the same, and only an older start in that file has the wanted line",
    SILENT_LINES,
    setup=Setup(faults=f"{TO_FILE};16=no-line", service=(f"StandardOutput=append:{LOG}", f"StandardError=append:{LOG}")),
)
async def append_older(scene: Scene) -> Ended:
    line = "Initialized DDTREE draft runner. block_size=8, tree_budget=16, tree_topk=4, draft_window_size=512, compact_cache=True"
    scene.shell(f"echo '[2026-07-11 02:00:11] {line}' >>{LOG}")
    return await scene.console.apply()


@fault(
    "journal-append-rotated",
    Where.JOURNAL,
    "the same file is rotated away in the middle of the start",
    (Verdict.CONFIRMED, Verdict.UNKNOWN),
    setup=Setup(faults=TO_FILE, service=(f"StandardOutput=append:{LOG}",)),
)
async def append_rotated(scene: Scene) -> Ended:
    started = await scene.console.apply_until("process up")
    scene.shell(f"cp {LOG} {LOG}.1; : >{LOG}")
    return await started.end()


@fault(
    "journal-overwritten-file",
    Where.JOURNAL,
    "StandardOutput=file: older lines may stand behind the new ones in that file",
    Verdict.UNKNOWN,
    "file:",
    setup=Setup(faults=FOREIGN, service=(f"StandardOutput=file:{LOG}",), started=False),
)
async def overwritten_file(scene: Scene) -> Ended:
    await scene.start_by_hand()
    return await scene.console.apply()


@fault(
    "journal-output-null",
    Where.JOURNAL,
    "StandardOutput=null: nothing is logged anywhere",
    Verdict.UNKNOWN,
    "null",
    setup=Setup(faults=FOREIGN, service=("StandardOutput=null",), started=False),
)
async def output_null(scene: Scene) -> Ended:
    await scene.start_by_hand()
    return await scene.console.apply()


@fault(
    "journal-binary-and-endless-lines",
    Where.JOURNAL,
    "this start logs bytes that are no UTF-8, NULs, and a line of 200,000 characters before the line that confirms",
    Verdict.CONFIRMED,
    setup=Setup(faults=FOREIGN, service=("ExecStartPre=-/bin/cat /run/binary",)),
)
async def binary(scene: Scene) -> Ended:
    bad = r"printf '\377\376 bad\000bytes\n'"
    endless = r"head -c 200000 /dev/zero | tr '\0' x"
    scene.shell(f"{{ {bad}; {endless}; printf '\\n\\033[2J[red]markup[/red]\\n'; }} >/run/binary")
    return await scene.console.apply()


def new_lines(scene: Scene) -> str:
    """The journal of the start that runs."""
    return scene.exec("journalctl", "--no-pager", "--output=cat", f"_SYSTEMD_INVOCATION_ID={scene.invocation}")


@fault(
    "journal-overwritten-file-rolled-back",
    Where.JOURNAL,
    "the same file, the new start dies, and with --rollback-on-failure the old one cannot be confirmed either",
    Verdict.PROCESS_DIED,
    "cannot confirm",
    old=(Old.IN_PLACE, Old.RESTORED),
    setup=Setup(faults=f"{FOREIGN};16=exit", service=(f"StandardOutput=file:{LOG}",), started=False),
)
async def overwritten_file_rolled_back(scene: Scene) -> Ended:
    await scene.start_by_hand()
    return await scene.console.apply("--rollback-on-failure")
