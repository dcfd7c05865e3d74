"""systemd refusing, looping, not doing what its exit status says; other units in the way."""

from __future__ import annotations

import asyncio

from dflash_console.apply import Verdict

from ..console import Ended
from ..records import NOT_BEGUN, Old, Setup, Where, fault
from ..scene import Scene

ALWAYS = ("Restart=always", "RestartSec=200ms")


def systemctl_does(scene: Scene, script: str, *verbs: str) -> None:
    """Have systemctl run ``script`` first when it is asked for one of ``verbs``; ``REAL`` in it is the real one."""
    patterns = "|".join(f'*" {verb} "*' for verb in verbs)
    scene.pretend("systemctl", f'case " $* " in {patterns}) {script};; esac; exec REAL "$@"')


@fault(
    "manager-start-limit",
    Where.MANAGER,
    "others use the start limit up: systemd takes the restart, stops the engine and starts none",
    Verdict.NO_RESTART,
    "too often|start limit|start-limit",
    setup=Setup(unit=("StartLimitIntervalSec=120", "StartLimitBurst=3")),
    quick=True,
)
async def start_limit(scene: Scene) -> Ended:
    scene.on_heal(lambda: scene.systemctl("reset-failed", scene.unit))
    # After the daemon-reload, which makes systemd count from the beginning.
    others = f'REAL "$@"; for i in 1 2 3; do REAL restart {scene.unit}; done; exit 0'
    systemctl_does(scene, others, "daemon-reload")
    return await scene.console.apply()


@fault(
    "manager-crash-loop",
    Where.MANAGER,
    "the new start dies and Restart=always starts it again and again",
    Verdict.PROCESS_DIED,
    "no kernel image|crash loop",
    setup=Setup(faults="16=exit", service=ALWAYS, unit=("StartLimitIntervalSec=0",)),
    quick=True,
)
async def crash_loop(scene: Scene) -> Ended:
    return await scene.console.apply()


@fault(
    "manager-crash-loop-rolled-back",
    Where.MANAGER,
    "the same, with --rollback-on-failure",
    Verdict.PROCESS_DIED,
    "rolled back",
    old=Old.RESTORED,
    setup=Setup(faults="16=exit", service=ALWAYS, unit=("StartLimitIntervalSec=0",)),
)
async def crash_loop_back(scene: Scene) -> Ended:
    return await scene.console.apply("--rollback-on-failure")


@fault(
    "manager-crash-loop-until-limit",
    Where.MANAGER,
    "the new start dies, is started again, and meets the start limit",
    Verdict.PROCESS_DIED,
    old=Old.RESTORED,
    setup=Setup(
        faults="16=exit",
        service=("Restart=on-failure", "RestartSec=50ms"),
        unit=("StartLimitIntervalSec=60", "StartLimitBurst=4"),
    ),
)
async def crash_loop_limit(scene: Scene) -> Ended:
    return await scene.console.apply("--rollback-on-failure")


@fault(
    "manager-systemctl-does-nothing",
    Where.MANAGER,
    "a systemctl in PATH that ends with 0 and does nothing for a restart",
    (Verdict.NO_RESTART, Verdict.REFUSED),
)
async def systemctl_does_nothing(scene: Scene) -> Ended:
    systemctl_does(scene, "exit 0", "restart", "start")
    return await scene.console.apply()


@fault(
    "manager-systemctl-does-nothing-at-all",
    Where.MANAGER,
    "a systemctl in PATH that ends with 0 and does nothing whatever",
    (Verdict.REFUSED, NOT_BEGUN),
    "systemd",
    old=Old.IN_PLACE,
)
async def systemctl_does_nothing_at_all(scene: Scene) -> Ended:
    scene.pretend("systemctl", "exit 0")
    return await scene.console.apply()


@fault(
    "manager-reload-fails",
    Where.MANAGER,
    "daemon-reload fails",
    Verdict.WRITE_FAILED,
    "Connection timed out",
    old=Old.IN_PLACE,
    quick=True,
)
async def reload_fails(scene: Scene) -> Ended:
    said = 'echo "Failed to reload daemon: Connection timed out" >&2; exit 1'
    systemctl_does(scene, said, "daemon-reload")
    return await scene.console.apply()


@fault(
    "manager-reload-does-nothing",
    Where.MANAGER,
    "daemon-reload ends with 0 and reloads nothing",
    Verdict.WRITE_FAILED,
    old=Old.IN_PLACE,
)
async def reload_does_nothing(scene: Scene) -> Ended:
    systemctl_does(scene, "exit 0", "daemon-reload")
    return await scene.console.apply()


@fault(
    "manager-unit-masked",
    Where.MANAGER,
    "somebody masked the running unit",
    (Verdict.REFUSED, NOT_BEGUN),
    "masked",
    old=Old.IN_PLACE,
    setup=Setup(folder="/usr/lib/systemd/system"),
)
async def unit_masked(scene: Scene) -> Ended:
    scene.systemctl("mask", scene.unit)
    scene.note_old()
    return await scene.console.apply()


@fault(
    "manager-masked-meanwhile",
    Where.MANAGER,
    "somebody masks the unit between the write and the restart",
    (Verdict.NO_RESTART, Verdict.WRITE_FAILED),
    "masked",
    old=(Old.RESTORABLE, Old.IN_PLACE),
    setup=Setup(folder="/usr/lib/systemd/system"),
)
async def masked_meanwhile(scene: Scene) -> Ended:
    scene.on_heal(lambda: scene.systemctl("unmask", scene.unit))
    running = await scene.console.apply_until("write", status="running")
    scene.systemctl("mask", scene.unit)
    return await running.end()


@fault(
    "manager-condition-fails",
    Where.MANAGER,
    "a Condition…= of the unit is no longer met, so the start is skipped",
    Verdict.NO_RESTART,
    "condition",
    setup=Setup(unit=("ConditionPathExists=/run/weights-mounted",), started=False),
)
async def condition_fails(scene: Scene) -> Ended:
    scene.exec("touch", "/run/weights-mounted")
    await scene.start()
    scene.note_old()
    scene.exec("rm", "/run/weights-mounted")
    scene.on_heal(lambda: scene.exec("touch", "/run/weights-mounted"))
    return await scene.console.apply()


@fault(
    "manager-second-unit-takes-the-port",
    Where.MANAGER,
    "a second unit with the same port waits for its chance, and takes it",
    Verdict.PROCESS_DIED,
    "port",
    setup=Setup(faults="16=slow"),
)
async def second_unit(scene: Scene) -> Ended:
    text = scene.unit_text().replace("STAND_IN_FAULTS=16=slow", "STAND_IN_FAULTS=")
    scene.write("/etc/systemd/system/twin.service", text + "\n".join(("Restart=always", "RestartSec=50ms", "")))
    scene.write("/etc/systemd/system/twin.service.d/limit.conf", "[Unit]\nStartLimitIntervalSec=0\n")
    scene.systemctl("daemon-reload")
    scene.systemctl("start", "--no-block", "twin")

    def end() -> None:
        scene.systemctl("stop", "twin")

    scene.on_heal(end)
    return await scene.console.apply()


@fault(
    "manager-orphan-holds-the-port",
    Where.MANAGER,
    "the unit is down, and an orphan of an earlier start holds the port",
    Verdict.REFUSED,
    "port",
    old=Old.IN_PLACE,
)
async def orphan_holds_port(scene: Scene) -> Ended:
    scene.systemctl("stop", scene.unit)
    argv = " ".join(scene.command())
    scene.exec("systemd-run", "--unit=orphan", "--", *argv.split())
    await scene.wait_for(scene.healthy, "the orphan answers")
    return await scene.console.apply()


@fault(
    "manager-restarted-by-somebody",
    Where.MANAGER,
    "somebody else restarts the unit while the new start is looked at",
    (Verdict.PROCESS_DIED, Verdict.CONFIRMED),
    setup=Setup(faults="16=slow"),
)
async def restarted_by_somebody(scene: Scene) -> Ended:
    running = await scene.console.apply_until("process up")
    scene.systemctl("restart", scene.unit)
    return await running.end()


@fault(
    "manager-stopped-by-somebody",
    Where.MANAGER,
    "somebody else stops the unit while the new start is looked at",
    Verdict.PROCESS_DIED,
    setup=Setup(faults="16=slow"),
)
async def stopped_by_somebody(scene: Scene) -> Ended:
    running = await scene.console.apply_until("process up")
    await asyncio.sleep(0.2)
    scene.systemctl("stop", scene.unit)
    return await running.end()


@fault(
    "manager-child-survives",
    Where.MANAGER,
    "KillMode=process leaves a worker of the old start behind; the new one starts",
    Verdict.CONFIRMED,
    setup=Setup(faults="8=orphan", service=("KillMode=process",)),
)
async def child_survives(scene: Scene) -> Ended:
    return await scene.console.apply()


@fault(
    "manager-bus-hangs",
    Where.MANAGER,
    "systemd itself hangs (every question to it waits) when the restart is asked for",
    (Verdict.NO_RESTART, Verdict.UNKNOWN),
)
async def bus_hangs(scene: Scene) -> Ended:
    systemctl_does(scene, "sleep 600", "restart")
    return await scene.console.apply()


@fault(
    "manager-bus-answers-nobody",
    Where.MANAGER,
    "systemd does the restart, and the one who asked for it never gets an answer",
    Verdict.CONFIRMED,
)
async def bus_answers_nobody(scene: Scene) -> Ended:
    systemctl_does(scene, 'REAL "$@"; sleep 600', "restart")
    return await scene.console.apply()


@fault(
    "manager-kernel-kills-it",
    Where.MANAGER,
    "the new start is killed by SIGKILL, as the kernel does when memory runs out",
    Verdict.PROCESS_DIED,
    "KILL|signal",
    setup=Setup(faults="16=slow"),
)
async def kernel_kills(scene: Scene) -> Ended:
    running = await scene.console.apply_until("process up")
    scene.exec("kill", "-KILL", scene.shown("MainPID"))
    return await running.end()


@fault(
    "manager-re-executed",
    Where.MANAGER,
    "systemd re-executes itself in the middle of the start, as a package update does",
    Verdict.CONFIRMED,
    setup=Setup(faults="16=slow"),
)
async def re_executed(scene: Scene) -> Ended:
    running = await scene.console.apply_until("restart")
    scene.systemctl("daemon-reexec")
    return await running.end()


@fault(
    "manager-bus-is-gone",
    Where.MANAGER,
    "the D-Bus daemon is down, so what systemd has loaded cannot be read back from it",
    (Verdict.CONFIRMED, Verdict.REFUSED, Verdict.WRITE_FAILED, NOT_BEGUN),
    old=(Old.RESTORABLE, Old.IN_PLACE),
)
async def bus_is_gone(scene: Scene) -> Ended:
    scene.shell("systemctl stop dbus.socket dbus.service")
    ended = await scene.console.apply()
    # The looks at the host need it.
    scene.shell("systemctl start dbus.service")
    return ended


@fault(
    "manager-host-rebooted",
    Where.MANAGER,
    "the host is rebooted in the middle of the start, and starts the unit by itself",
    Verdict.PROCESS_DIED,
    "rebooted",
    setup=Setup(faults="16=slow", install=True),
)
async def host_rebooted(scene: Scene) -> Ended:
    running = await scene.console.apply_until("process up")
    scene.host.reboot()
    return await running.end()


@fault(
    "manager-host-loses-power",
    Where.MANAGER,
    "the host's power fails in the middle of the start and comes back; with --rollback-on-failure",
    Verdict.PROCESS_DIED,
    "rebooted",
    old=Old.RESTORED,
    setup=Setup(faults="16=slow", install=True),
)
async def host_loses_power(scene: Scene) -> Ended:
    running = await scene.console.apply_until("process up", "--rollback-on-failure")
    scene.host.reboot(at_once=True)
    return await running.end()
