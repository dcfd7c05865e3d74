"""Rights that are missing on the host."""

from __future__ import annotations

from dflash_console.apply import Verdict

from ..console import Ended
from ..records import NOT_BEGUN, Old, Setup, Where, fault
from ..scene import UNIT, Scene

OPS = Setup(user="ops", started=False)


@fault(
    "rights-sudo-refused",
    Where.RIGHTS,
    "the user who logs in may not use sudo",
    Verdict.REFUSED,
    "sudo",
    old=Old.IN_PLACE,
    setup=OPS,
    quick=True,
)
async def sudo_refused(scene: Scene) -> Ended:
    await running(scene)
    return await scene.console.apply()


@fault(
    "rights-sudo-wants-a-password",
    Where.RIGHTS,
    "sudo asks the user who logs in for a password",
    Verdict.REFUSED,
    "password",
    old=Old.IN_PLACE,
    setup=OPS,
)
async def sudo_password(scene: Scene) -> Ended:
    await running(scene)
    scene.write("/etc/sudoers.d/ops", "ops ALL=(ALL) ALL\n", 0o440)
    return await scene.console.apply()


@fault(
    "rights-sudo-works",
    Where.RIGHTS,
    "nothing is broken: the user who logs in is not root and may use sudo",
    Verdict.CONFIRMED,
    setup=OPS,
)
async def sudo_works(scene: Scene) -> Ended:
    scene.write("/etc/sudoers.d/ops", "ops ALL=(ALL) NOPASSWD: ALL\n", 0o440)
    await scene.start()
    scene.note_old()
    return await scene.console.apply()


@fault(
    "rights-unit-unreadable",
    Where.RIGHTS,
    "the unit file has mode 0600 and the user who logs in is not root",
    (Verdict.REFUSED, NOT_BEGUN),
    "not allowed|permission|sudo|may not",
    old=Old.IN_PLACE,
    setup=OPS,
)
async def unit_unreadable(scene: Scene) -> Ended:
    await running(scene)
    scene.exec("chmod", "600", f"/etc/systemd/system/{UNIT}")
    return await scene.console.apply()


@fault(
    "rights-polkit-denies-the-restart",
    Where.RIGHTS,
    "files may be written, the restart is not allowed",
    (Verdict.REFUSED, Verdict.NO_RESTART),
    old=(Old.IN_PLACE, Old.RESTORABLE),
    setup=OPS,
)
async def polkit_denies(scene: Scene) -> Ended:
    await running(scene)
    scene.shell(f"mkdir -p /etc/systemd/system/{UNIT}.d; chown -R ops /etc/systemd/system")
    return await scene.console.apply()


async def running(scene: Scene) -> None:
    """Start the unit without the console, for a user who may look at everything."""
    await scene.start_by_hand()
    scene.exec("usermod", "-aG", "systemd-journal", "ops")
