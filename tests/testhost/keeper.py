"""Holds one test host up until its standard input ends, then leaves nothing behind. Started by :mod:`tests.testhost.host`.

    unshare --mount --propagation private --pid --fork --kill-child --mount-proc python keeper.py FOLDER NAME [BIND…]

It is the first process of a process and a mount namespace: the container, the overlay and the tmpfs under it go when it goes,
however it dies, and it sees the end of its standard input when the test run is killed. Only the standard library: it runs
outside the project's environment.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

STOP_TIMEOUT_S = 5.0
REBOOT = 133
"""systemd-nspawn ends with this status when what runs in it wants to be booted again (``--keep-unit``)."""


def main(folder: Path, name: str, binds: list[str]) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    nspawn = None
    try:
        root = mount(folder)
        furnish(root, folder, name)
        nspawn = boot(root, folder, name, binds)
        while ended(nspawn) == REBOOT:
            nspawn = boot(root, folder, name, binds)
        sys.stdin.buffer.read()
    finally:
        if nspawn is not None:
            stop(nspawn)
        table = f"testhost_{(folder / 'port').read_text().strip()}"
        subprocess.run(["nft", "delete", "table", "inet", table], stderr=subprocess.DEVNULL, check=False)
        clear(folder)
    return 0


def ended(nspawn: subprocess.Popen[bytes]) -> int | None:
    """Wait for the host's end, and its status; ``None`` when the standard input ends first."""
    waiting = select.poll()
    process = os.pidfd_open(nspawn.pid)
    for handle in (process, sys.stdin.fileno()):
        waiting.register(handle, select.POLLIN | select.POLLHUP)
    try:
        ready = {handle for handle, _ in waiting.poll()}
        return nspawn.wait() if process in ready else None
    finally:
        os.close(process)


def mount(folder: Path) -> Path:
    """The overlay: this machine's own files below, whatever the host writes above, in memory."""
    layers = folder / "layers"
    layers.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4g,mode=755", "testhost", layers], check=True)
    upper, work, root = layers / "upper", layers / "work", layers / "root"
    for part in (upper, work, root):
        part.mkdir()
    options = f"lowerdir=/,upperdir={upper},workdir={work}"
    subprocess.run(["mount", "-t", "overlay", "-o", options, "testhost", root], check=True)
    return root


def furnish(root: Path, folder: Path, name: str) -> None:
    """Give the host an identity, an empty journal, and an sshd with keys of its own."""
    (root / "etc/machine-id").unlink(missing_ok=True)
    (root / "etc/machine-id").write_text(os.urandom(16).hex() + "\n")
    (root / "etc/hostname").write_text(name + "\n")
    shutil.rmtree(root / "var/log/journal", ignore_errors=True)
    (root / "var/log/journal").mkdir(parents=True)
    for key in (root / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    subprocess.run(["ssh-keygen", "-q", "-A", "-f", root], check=True, stdout=subprocess.DEVNULL)
    # What this machine's root does at login is no part of the host, and may take longer than all the rest.
    for name in (".bashrc", ".profile", ".bash_profile", ".zshrc", ".cshrc", ".tcshrc"):
        (root / "root" / name).unlink(missing_ok=True)
    # Package timers of the machine below would fetch things from the network.
    for timers in ("etc/systemd/system", "usr/lib/systemd/system"):
        shutil.rmtree(root / timers / "timers.target.wants", ignore_errors=True)
    units = root / "etc/systemd/system"
    (units / "testhost.target").write_text(
        "[Unit]\nRequires=basic.target\nAfter=basic.target\nWants=testhost-ssh.service dbus.service\nAllowIsolate=yes\n"
    )
    # A user's own manager takes its log's target from the machine's start too, where the first process's goes to the console.
    (units / "user@.service.d").mkdir(exist_ok=True)
    (units / "user@.service.d/log.conf").write_text("[Service]\nEnvironment=SYSTEMD_LOG_TARGET=journal\n")
    # As Debian's own ssh.service: a start or restart is over when the server listens, not before.
    (units / "testhost-ssh.service").write_text(
        "[Service]\nType=notify\nExecStartPre=/bin/mkdir -p /run/sshd\n"
        "ExecStart=/usr/sbin/sshd -D -e -f /etc/testhost/sshd_config\n"
    )
    settings = root / "etc/testhost"
    settings.mkdir()
    shutil.copy(folder / "id.pub", settings / "authorized_keys")
    shutil.copy(folder / "sshd_config", settings / "sshd_config")
    for algorithm in ("ed25519", "ecdsa", "rsa"):
        shutil.copy(root / f"etc/ssh/ssh_host_{algorithm}_key.pub", folder / f"host_{algorithm}.pub")


def boot(root: Path, folder: Path, name: str, binds: list[str]) -> subprocess.Popen[bytes]:
    log = (folder / "console.log").open("wb")
    command = ["systemd-nspawn", "--quiet", f"--directory={root}", f"--machine={name}"]
    command += ["--register=no", "--keep-unit", "--link-journal=no", "--capability=all", "--console=pipe"]
    command += [f"--bind-ro={path}" for path in binds]
    command += ["--boot", "systemd.unit=testhost.target", "systemd.log_target=console"]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def stop(nspawn: subprocess.Popen[bytes]) -> None:
    """Kill the host's first process, and with it all others; nothing in it is worth a clean shutdown."""
    for child in Path(f"/proc/{nspawn.pid}/task/{nspawn.pid}/children").read_text().split():
        os.kill(int(child), signal.SIGKILL)
    try:
        nspawn.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        nspawn.kill()
        nspawn.wait()


def clear(folder: Path) -> None:
    """Remove the host's folder, file by file: what is mounted in it shows this machine's own files."""
    for mounted in (folder / "layers/root", folder / "layers"):
        subprocess.run(["umount", "--lazy", mounted], stderr=subprocess.DEVNULL, check=False)
    for entry in folder.iterdir():
        if entry.is_dir():
            entry.rmdir()
        else:
            entry.unlink()
    folder.rmdir()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
