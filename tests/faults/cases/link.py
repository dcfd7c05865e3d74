"""Links that are cut, hosts that hang, keys that do not fit, jump hosts that are gone."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dflash_console.apply import Verdict

from ..console import Ended
from ..records import NOT_BEGUN, Old, Setup, Where, fault
from ..scene import Scene

SLOW = Setup(faults="16=slow")


@fault(
    "link-cut-and-healed",
    Where.LINK,
    "the link is dead for 8 s from the restart on; TCP outlives it",
    Verdict.CONFIRMED,
    setup=SLOW,
    quick=True,
)
async def cut_and_healed(scene: Scene) -> Ended:
    return await cut_for(scene, "restart", 8)


@fault(
    "link-cut-until-lost",
    Where.LINK,
    "the link is dead for 40 s from the restart on; the connection is lost and made anew",
    Verdict.CONFIRMED,
    setup=Setup(faults="16=slow", ready_timeout_s=120),
)
async def cut_until_lost(scene: Scene) -> Ended:
    return await cut_for(scene, "restart", 40)


@fault("link-cut-at-the-write", Where.LINK, "the link is dead for 8 s while the file is written", Verdict.CONFIRMED)
async def cut_at_write(scene: Scene) -> Ended:
    return await cut_for(scene, "backup", 8)


@fault(
    "link-cut-at-the-prompt", Where.LINK, "the link is dead for 8 s while the engine gets ready", Verdict.CONFIRMED, setup=SLOW
)
async def cut_at_prompt(scene: Scene) -> Ended:
    return await cut_for(scene, "process up", 8)


@fault(
    "link-cut-for-good",
    Where.LINK,
    "the link is cut at the restart and stays dead",
    Verdict.LINK_DOWN,
    "link",
    setup=Setup(faults="16=slow", ready_timeout_s=20),
)
async def cut_for_good(scene: Scene) -> Ended:
    running = await scene.console.apply_until("restart", status="running")
    scene.host.cut()
    scene.on_heal(scene.host.heal)
    return await running.end()


@fault(
    "link-cut-and-resumed",
    Where.LINK,
    "the same; the next console goes on with --resume once the link is back",
    Verdict.CONFIRMED,
    setup=Setup(faults="16=slow", ready_timeout_s=20),
)
async def cut_and_resumed(scene: Scene) -> Ended:
    running = await scene.console.apply_until("restart", status="running")
    scene.host.cut()
    await running.end()
    scene.host.heal()
    return await scene.console.run("apply", "--resume", "--yes")


@fault(
    "link-engine-dies-in-the-dark",
    Where.LINK,
    "the new engine dies while the link is cut for 8 s",
    Verdict.PROCESS_DIED,
    "no kernel image",
    setup=Setup(faults="16=exit"),
)
async def dies_in_the_dark(scene: Scene) -> Ended:
    return await cut_for(scene, "restart", 8)


@fault(
    "link-sshd-restarted",
    Where.LINK,
    "sshd is restarted and drops every connection in the middle of the start",
    Verdict.CONFIRMED,
    setup=SLOW,
)
async def sshd_restarted(scene: Scene) -> Ended:
    running = await scene.console.apply_until("process up")
    scene.systemctl("restart", "testhost-ssh")
    return await running.end()


@fault(
    "link-host-hangs",
    Where.LINK,
    "the whole host hangs for 8 s in the middle of the start",
    Verdict.CONFIRMED,
    setup=SLOW,
)
async def host_hangs(scene: Scene) -> Ended:
    running = await scene.console.apply_until("process up")
    scene.host.hang()
    scene.on_heal(scene.host.resume)
    await asyncio.sleep(8)
    scene.heal()
    return await running.end()


@fault(
    "link-host-hangs-for-good",
    Where.LINK,
    "the whole host hangs at the restart, until the console has given up",
    (Verdict.LINK_DOWN, Verdict.TIMED_OUT, Verdict.NO_RESTART),
    setup=Setup(faults="16=slow", ready_timeout_s=20),
)
async def host_hangs_for_good(scene: Scene) -> Ended:
    running = await scene.console.apply_until("restart")
    scene.host.hang()
    scene.on_heal(scene.host.resume)
    return await running.end()


@fault(
    "link-host-key-changed",
    Where.LINK,
    "the host has another key than known_hosts",
    NOT_BEGUN,
    "key",
    "known_hosts",
    old=Old.IN_PLACE,
    quick=True,
)
async def host_key_changed(scene: Scene) -> Ended:
    known = scene.console.home / ".ssh/known_hosts"
    text = kept(scene, known)
    # Well-formed, and another's.
    other = scene.make_key("other").with_suffix(".pub").read_text().split()[1]
    known.write_text(" ".join([*text.split()[:2], other]) + "\n")
    ended = await scene.console.apply()
    assert other in known.read_text(), "the changed key was accepted"
    return ended


@fault("link-host-key-unknown", Where.LINK, "known_hosts does not have the host", NOT_BEGUN, "SHA256:", old=Old.IN_PLACE)
async def host_key_unknown(scene: Scene) -> Ended:
    known = scene.console.home / ".ssh/known_hosts"
    kept(scene, known)
    known.write_text("")
    ended = await scene.console.apply()
    assert known.read_text() == "", "the unknown key was accepted unasked"
    return ended


@fault(
    "link-wrong-key",
    Where.LINK,
    "the host does not accept the user's key",
    NOT_BEGUN,
    "key|auth|denied",
    old=Old.IN_PLACE,
)
async def wrong_key(scene: Scene) -> Ended:
    config = scene.console.home / ".ssh/config"
    text = kept(scene, config)
    config.write_text(text.replace(str(scene.host.key), str(scene.make_key("wrong"))))
    return await scene.console.apply()


@fault(
    "link-jump-host-gone",
    Where.LINK,
    "nobody listens on the jump host",
    NOT_BEGUN,
    "bastion",
    old=Old.IN_PLACE,
    setup=Setup(jump=True),
)
async def jump_gone(scene: Scene) -> Ended:
    assert scene.jump is not None
    jump = scene.jump
    jump.exec("systemctl", "stop", "testhost-ssh")
    scene.on_heal(lambda: jump.exec("systemctl", "start", "testhost-ssh"))
    return await scene.console.apply()


@fault(
    "link-jump-host-key-changed",
    Where.LINK,
    "the jump host has another key than known_hosts",
    NOT_BEGUN,
    "key",
    "known_hosts",
    old=Old.IN_PLACE,
    setup=Setup(jump=True),
)
async def jump_key_changed(scene: Scene) -> Ended:
    assert scene.jump is not None
    known = scene.console.home / ".ssh/known_hosts"
    text = kept(scene, known)
    known.write_text(text.replace(scene.jump.host_key().split()[1], scene.host.host_key().split()[1]))
    return await scene.console.apply()


@fault(
    "link-jump-host-cut",
    Where.LINK,
    "the link to the jump host is dead for 8 s from the restart on",
    Verdict.CONFIRMED,
    setup=Setup(faults="16=slow", jump=True),
)
async def jump_cut(scene: Scene) -> Ended:
    assert scene.jump is not None
    running = await scene.console.apply_until("restart", status="running")
    scene.jump.cut()
    await asyncio.sleep(8)
    scene.jump.heal()
    return await running.end()


@fault(
    "link-jump-host-restarted",
    Where.LINK,
    "the jump host's sshd is restarted and drops every connection",
    Verdict.CONFIRMED,
    setup=Setup(faults="16=slow", jump=True),
)
async def jump_restarted(scene: Scene) -> Ended:
    assert scene.jump is not None
    running = await scene.console.apply_until("process up")
    scene.jump.exec("systemctl", "restart", "testhost-ssh")
    return await running.end()


@fault(
    "link-no-forwarding",
    Where.LINK,
    "sshd forbids port forwarding, so the engine's HTTP port cannot be reached",
    (Verdict.REFUSED, Verdict.NOT_READY, Verdict.UNKNOWN, Verdict.TIMED_OUT, NOT_BEGUN),
    "forward",
    old=(Old.IN_PLACE, Old.RESTORABLE),
    setup=Setup(started=False, ready_timeout_s=15),
)
async def no_forwarding(scene: Scene) -> Ended:
    await scene.start_by_hand()
    configure_sshd(scene, "AllowTcpForwarding no")
    return await scene.console.apply()


@fault("link-few-sessions", Where.LINK, "sshd allows four sessions on a connection", Verdict.CONFIRMED)
async def few_sessions(scene: Scene) -> Ended:
    configure_sshd(scene, "MaxSessions 4")
    return await scene.console.apply()


@fault(
    "link-two-sessions",
    Where.LINK,
    "sshd allows two sessions on a connection: too few for the lock, the log and commands at once",
    (Verdict.CONFIRMED, Verdict.REFUSED),
    old=(Old.RESTORABLE, Old.IN_PLACE),
)
async def two_sessions(scene: Scene) -> Ended:
    configure_sshd(scene, "MaxSessions 2")
    return await scene.console.apply()


def configure_sshd(scene: Scene, line: str) -> None:
    """Restart the host's sshd with one more line."""
    sshd = "/etc/testhost/sshd_config"
    scene.shell(f"sed -i '1i {line}' {sshd}; systemctl restart testhost-ssh")
    scene.on_heal(lambda: scene.shell(f"sed -i 1d {sshd}; systemctl restart testhost-ssh"))


@fault("link-shell-that-talks", Where.LINK, "the login shell's start-up files print a banner on both outputs", Verdict.CONFIRMED)
async def shell_that_talks(scene: Scene) -> Ended:
    for path in ("/root/.bashrc", "/root/.profile", "/etc/bash.bashrc"):
        scene.write(path, 'echo hello; echo "{\\"a\\": 1}"; echo oops >&2\n')
    return await scene.console.apply()


def kept(scene: Scene, path: Path) -> str:
    """The text of a file of this user's, which has it again once the fault is over."""
    text = path.read_text()
    scene.on_heal(lambda: path.write_text(text))
    return text


async def cut_for(scene: Scene, stage: str, seconds: float) -> Ended:
    """Cut the link while the stage runs, and heal it after a while."""
    running = await scene.console.apply_until(stage, status="running")
    scene.host.cut()
    await asyncio.sleep(seconds)
    scene.host.heal()
    return await running.end()
