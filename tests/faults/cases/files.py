"""Full and read-only file systems, rights that are missing, other people's drop-ins and scripts."""

from __future__ import annotations

from dflash_console.apply import Verdict

from ..console import Ended
from ..records import Old, Setup, Where, fault
from ..scene import UNIT, Scene, Snapshot

DROP_INS = f"/etc/systemd/system/{UNIT}.d"


def words(scene: Scene) -> str:
    return " ".join(scene.command())


def small_disk(scene: Scene, folder: str) -> None:
    """A file system of 32 KiB at ``folder``, without a byte left."""
    scene.shell(f"mkdir -p {folder}; mount -t tmpfs -o size=32k full {folder}; head -c 65536 /dev/zero >{folder}/fill || true")
    scene.on_heal(lambda: scene.exec("umount", "-l", folder))


@fault(
    "files-disk-full",
    Where.FILES,
    "no space is left where the drop-in is to be written",
    Verdict.WRITE_FAILED,
    "no space|full",
    old=Old.IN_PLACE,
    quick=True,
)
async def disk_full(scene: Scene) -> Ended:
    small_disk(scene, DROP_INS)
    return await scene.console.apply()


@fault(
    "files-disk-full-for-backup",
    Where.FILES,
    "no space is left where the old text is to be kept",
    Verdict.WRITE_FAILED,
    "no space|full",
    old=Old.IN_PLACE,
)
async def backup_disk_full(scene: Scene) -> Ended:
    small_disk(scene, "/var/lib/ddtree-console")
    return await scene.console.apply()


@fault(
    "files-disk-full-at-roll-back",
    Where.FILES,
    "the new start dies, and by then the disk is full",
    Verdict.ROLLBACK_FAILED,
    "no space|full",
    setup=Setup(faults="16=exit", service=("ExecStartPre=/bin/true",)),
)
async def disk_full_at_roll_back(scene: Scene) -> Ended:
    # The drop-in's folder is a small disk with room for one version of the file, from which another program then takes the rest.
    scene.write(f"{DROP_INS}/override.conf", f"[Service]\nExecStart=\nExecStart={words(scene)}\n")
    scene.systemctl("daemon-reload")
    scene.note_old()
    running = await scene.console.apply_until("restart", "--rollback-on-failure", status="running")
    disk = "/mnt/small"
    scene.shell(
        f"mkdir -p {disk}; mount -t tmpfs -o size=32k full {disk}; cp -a {DROP_INS}/. {disk}/; "
        f"mount --move {disk} {DROP_INS} || mount --bind {disk} {DROP_INS}; head -c 65536 /dev/zero >{DROP_INS}/fill || true"
    )
    ended = await running.end()
    # What was written before the disk was full lies below it, as it was written; the roll-back has to work from there.
    scene.on_heal(lambda: scene.shell(f"umount -l {DROP_INS}; umount -l {disk} 2>/dev/null || true"))
    return ended


@fault(
    "files-read-only",
    Where.FILES,
    "the file system of /etc/systemd/system went read-only",
    (Verdict.WRITE_FAILED, Verdict.REFUSED),
    "read-only",
    old=Old.IN_PLACE,
)
async def read_only(scene: Scene) -> Ended:
    folder = "/etc/systemd/system"
    scene.shell(f"mount --bind {folder} {folder}; mount -o remount,ro,bind {folder}")
    scene.on_heal(lambda: scene.exec("umount", "-l", folder))
    return await scene.console.apply()


@fault(
    "files-override-has-the-flag",
    Where.FILES,
    "override.conf sets the flag itself: it is edited there",
    Verdict.CONFIRMED,
    quick=True,
)
async def override_has_flag(scene: Scene) -> Ended:
    text = f"# ours\n[Service]\nExecStart=\nExecStart={words(scene)} --speculative-draft-window-size 2048\n"
    scene.write(f"{DROP_INS}/override.conf", text)
    scene.systemctl("daemon-reload")
    await scene_restart(scene)
    return await scene.console.apply()


@fault(
    "files-later-drop-in-wins", Where.FILES, "a drop-in that sorts after the console's sets the whole command", Verdict.CONFIRMED
)
async def later_drop_in(scene: Scene) -> Ended:
    scene.write(f"{DROP_INS}/zzz-last.conf", f"[Service]\nExecStart=\nExecStart={words(scene)} --watchdog-timeout 300\n")
    scene.systemctl("daemon-reload")
    await scene_restart(scene)
    return await scene.console.apply()


@fault(
    "files-later-drop-in-meanwhile",
    Where.FILES,
    "a drop-in that wins appears between the check and the write",
    Verdict.WRITE_FAILED,
    "zzz-last.conf",
    old=Old.IN_PLACE,
)
async def later_drop_in_meanwhile(scene: Scene) -> Ended:
    running = await scene.console.apply_until("backup", status="running")
    scene.write(f"{DROP_INS}/zzz-last.conf", f"[Service]\nExecStart=\nExecStart={words(scene)}\n")
    ended = await running.end()
    scene.exec("rm", f"{DROP_INS}/zzz-last.conf")
    scene.systemctl("daemon-reload")
    return ended


@fault(
    "files-environment-file",
    Where.FILES,
    "the flags live in an EnvironmentFile; the new ones kill the engine",
    Verdict.PROCESS_DIED,
    "no kernel image",
    old=Old.RESTORED,
    setup=Setup(faults="16=exit", started=False),
)
async def environment_file(scene: Scene) -> Ended:
    flags = "--speculative-ddtree-budget 8 --speculative-draft-window-size 2048"
    scene.write("/etc/default/engine", f"# budget and window\nSPEC_ARGS={flags}\n")
    text = scene.unit_text().replace("--speculative-ddtree-budget 8", "$SPEC_ARGS")
    scene.write(f"/etc/systemd/system/{scene.unit}", text.replace("[Service]", "[Service]\nEnvironmentFile=/etc/default/engine"))
    scene.systemctl("daemon-reload")
    await scene.start()
    scene.note_old()
    return await scene.console.apply("--rollback-on-failure")


@fault(
    "files-drop-in-folder-is-a-link",
    Where.FILES,
    "the unit's drop-in folder is a symbolic link to a shared one",
    Verdict.PROCESS_DIED,
    old=Old.RESTORED,
    setup=Setup(faults="16=exit"),
)
async def drop_in_folder_link(scene: Scene) -> Ended:
    scene.shell(f"mkdir -p /srv/drop-ins/{UNIT}.d; rm -rf {DROP_INS}; ln -s /srv/drop-ins/{UNIT}.d {DROP_INS}")
    scene.systemctl("daemon-reload")
    ended = await scene.console.apply("--rollback-on-failure")
    assert scene.exec("readlink", DROP_INS).strip() == f"/srv/drop-ins/{UNIT}.d", "the link was replaced"
    return ended


@fault(
    "files-drop-in-is-a-dangling-link",
    Where.FILES,
    "the console's own drop-in is a link to a file that is not there",
    (Verdict.CONFIRMED, Verdict.REFUSED, Verdict.WRITE_FAILED),
    old=(Old.RESTORABLE, Old.IN_PLACE),
)
async def dangling_drop_in(scene: Scene) -> Ended:
    scene.shell(f"mkdir -p {DROP_INS}; ln -s /srv/nowhere/zz.conf {DROP_INS}/zz-ddtree-console.conf")
    scene.systemctl("daemon-reload")
    return await scene.console.apply()


async def hidden_edit_is_said(scene: Scene, ended: Ended) -> Ended:
    """The script's text is what must stay, since the console may not undo another's edit; a drop-in that hides it is drift."""
    rebase(scene, f"/etc/systemd/system/{UNIT}")
    if ended.code == 0:
        seen = await scene.console.run("drift")
        assert seen.code == 3, "the drop-in hides the script's edit, and drift does not say so"
        assert "hides" in seen.out, seen.out
    return ended


@fault(
    "files-script-rewrites-the-unit",
    Where.FILES,
    "a script rewrites the unit file while the plan is being carried out",
    (Verdict.REFUSED, Verdict.WRITE_FAILED, Verdict.CONFIRMED, Verdict.OTHER_VALUE),
    old=(Old.IN_PLACE, Old.RESTORABLE),
)
async def script_rewrites(scene: Scene) -> Ended:
    running = await scene.console.apply_until("backup", status="running")
    scene.exec("sed", "-i", "s/--speculative-ddtree-topk 4/--speculative-ddtree-topk 2/", f"/etc/systemd/system/{UNIT}")
    ended = await running.end()
    return await hidden_edit_is_said(scene, ended)


@fault(
    "files-script-rewrites-and-restarts",
    Where.FILES,
    "a script rewrites the unit, reloads and restarts it right after the write",
    (Verdict.REFUSED, Verdict.WRITE_FAILED, Verdict.CONFIRMED, Verdict.OTHER_VALUE, Verdict.PROCESS_DIED),
    old=(Old.IN_PLACE, Old.RESTORABLE),
)
async def script_restarts(scene: Scene) -> Ended:
    running = await scene.console.apply_until("write")
    scene.shell(
        f"sed -i 's/--speculative-ddtree-topk 4/--speculative-ddtree-topk 2/' /etc/systemd/system/{UNIT}; "
        f"systemctl daemon-reload; systemctl restart {UNIT}"
    )
    ended = await running.end()
    return await hidden_edit_is_said(scene, ended)


@fault(
    "files-script-edits-the-drop-in",
    Where.FILES,
    "a script puts the old budget back into the console's own drop-in after the write",
    (Verdict.WRITE_FAILED, Verdict.OTHER_VALUE),
    old=(Old.IN_PLACE, Old.RESTORABLE),
)
async def script_edits_drop_in(scene: Scene) -> Ended:
    running = await scene.console.apply_until("reload")
    path = f"{DROP_INS}/zz-ddtree-console.conf"
    scene.shell(f"sed -i 's/--speculative-ddtree-budget 16/--speculative-ddtree-budget 8/' {path}; systemctl daemon-reload")
    return await running.end()


@fault(
    "files-unit-changed-and-not-loaded",
    Where.FILES,
    "the unit file was edited before, and daemon-reload forgotten",
    (Verdict.CONFIRMED, Verdict.REFUSED),
    old=(Old.RESTORABLE, Old.IN_PLACE),
)
async def changed_not_loaded(scene: Scene) -> Ended:
    scene.exec("sed", "-i", "s/--speculative-ddtree-topk 4/--speculative-ddtree-topk 2/", f"/etc/systemd/system/{UNIT}")
    scene.note_old()
    with_top_k(scene)
    return await scene.console.apply()


@fault(
    "files-unit-is-broken",
    Where.FILES,
    "the unit has a line that systemd complains about, before anything is changed",
    (Verdict.CONFIRMED, Verdict.REFUSED),
    old=(Old.RESTORABLE, Old.IN_PLACE),
)
async def unit_is_broken(scene: Scene) -> Ended:
    scene.shell(f"printf 'Frobnicate=yes\\n' >>/etc/systemd/system/{UNIT}; systemctl daemon-reload")
    scene.note_old()
    return await scene.console.apply()


def rebase(scene: Scene, path: str) -> None:
    """What another wrote into ``path`` belongs to the configuration that has to stay, once it is loaded."""
    scene.before.files[path] = scene.exec("sha256sum", path).split()[0]
    with_top_k(scene)


def with_top_k(scene: Scene) -> None:
    """The old command is the one that the edited unit asks for, at the latest when something restarts it."""

    def edited(argv: tuple[str, ...]) -> tuple[str, ...]:
        place = argv.index("--speculative-ddtree-topk") + 1
        return (*argv[:place], "2", *argv[place + 1 :])

    scene.before = Snapshot(scene.before.files, edited(scene.before.loaded))
    scene.old_argv = edited(scene.old_argv)


async def scene_restart(scene: Scene) -> None:
    """Restart with what was just installed, confirm it with the console, and call it the old configuration."""
    ended = await scene.console.run("restart", "--yes")
    assert ended.code == 0, ended.err + ended.out
    scene.note_old()
