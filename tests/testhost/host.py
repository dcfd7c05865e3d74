"""One test host: boot it, act inside it, disturb it, take it down."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from engine_launch.embedded.model_files import CACHE_VARIABLE, cache_folder
from tests.ports import free_port

STATE = Path("/run/ddtree-testhost")
PROJECT = Path(__file__).resolve().parents[2]
MODEL_CACHE = cache_folder()
"""Of the user who runs the tests, looked up before any test gives itself another home."""
BOOT_TIMEOUT_S = 60.0
NEEDED = {
    "systemd-nspawn": "systemd-container",
    "dbus-daemon": "dbus",
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
    "nft": "nftables",
}
"""Program → the Debian package that has it."""

SSHD_CONFIG = """\
Port {port}
ListenAddress 127.0.0.1
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
AuthorizedKeysFile /etc/testhost/authorized_keys .ssh/authorized_keys
Subsystem sftp internal-sftp
"""


class BootError(Exception):
    """The host did not come up; the message has the end of its console."""


def missing_requirements() -> str | None:
    """Why no test host can be booted here, in one sentence; ``None`` when it can."""
    if os.geteuid() != 0:
        return "test hosts need root"
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = [package for program, package in NEEDED.items() if shutil.which(program, path=path) is None]
    return f"test hosts need these Debian packages: {' '.join(missing)}" if missing else None


class TestHost:
    """A booted host. Make one with :meth:`boot`; :meth:`down` ends it, and so does the end of this process, however it comes."""

    __test__ = False

    def __init__(self, folder: Path, keeper: subprocess.Popen[bytes] | None = None) -> None:
        self.folder = folder
        self.port = int((folder / "port").read_text())
        """Where its sshd listens, on 127.0.0.1."""
        self.name = (folder / "name").read_text().strip()
        self._keeper = keeper

    @classmethod
    def boot(cls, name: str, *, port: int = 0, sshd: str = "") -> TestHost:
        """Boot a host; it takes about a second.

        Args:
            name: its host name.
            port: of its sshd; 0 takes a free one.
            sshd: further lines of sshd_config.

        Raises:
            BootError: it did not come up.
        """
        if reason := missing_requirements():
            raise BootError(reason)
        STATE.mkdir(exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=STATE))
        port = port or free_port()
        (folder / "name").write_text(name + "\n")
        (folder / "port").write_text(f"{port}\n")
        (folder / "sshd_config").write_text(SSHD_CONFIG.format(port=port) + sshd)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "testhost", "-f", folder / "id"], check=True)
        command = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]
        command += [sys.executable, "-I", str(Path(__file__).with_name("keeper.py")), str(folder), name, *_unseen_folders()]
        with (folder / "keeper.log").open("wb") as log:
            # A session of its own: Ctrl-C is the test run's, which then takes the host down.
            keeper = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=log, start_new_session=True)
        (folder / "keeper").write_text(f"{keeper.pid}\n")
        host = cls(folder, keeper)
        try:
            host._wait_until_up()
        except BaseException:
            host.down()
            raise
        return host

    @classmethod
    def find(cls, name: str) -> TestHost:
        """A host that another process booted. Raises: BootError."""
        for folder in sorted(STATE.glob(f"{name}.*")):
            if (folder / "keeper").exists():
                return cls(folder)
        raise BootError(f"no host called {name} is up")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.down()

    @property
    def key(self) -> Path:
        """The private key that root and users made by :meth:`add_user` log in with."""
        return self.folder / "id"

    @property
    def destination(self) -> str:
        return f"ssh://root@127.0.0.1:{self.port}"

    def host_key(self, algorithm: str = "ed25519") -> str:
        """Its public host key, ``TYPE BASE64``."""
        return " ".join((self.folder / f"host_{algorithm}.pub").read_text().split()[:2])

    def known_hosts_line(self, address: str = "127.0.0.1") -> str:
        return f"[{address}]:{self.port} {self.host_key()}\n"

    @property
    def leader(self) -> int:
        """The process id, on this machine, of the host's first process."""
        pid = int((self.folder / "keeper").read_text())
        # unshare → the keeper → systemd-nspawn → the host's first process
        for _ in range(3):
            try:
                pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
            except (OSError, IndexError):
                raise BootError(f"the host {self.name} is not up; {self._console()}") from None
        return pid

    def path(self, path: str) -> Path:
        """The host's file ``path`` as seen from this machine, to read and write."""
        return Path(f"/proc/{self.leader}/root{path}")

    def exec(self, *argv: str, check: bool = True, timeout: float = 60, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run a command inside as root, without SSH. Raises: AssertionError when it fails and ``check`` is set."""
        command = ["nsenter", "--target", str(self.leader), "--all", "--", *argv]
        done = subprocess.run(command, capture_output=True, timeout=timeout, input=stdin, check=False)
        if check and done.returncode:
            said = (done.stderr + done.stdout).decode(errors="replace")
            raise AssertionError(f"{' '.join(argv)} on {self.name} ended with {done.returncode}: {said}")
        return done

    def cut(self) -> None:
        """Drop all packets of its sshd both ways; the host goes on working and no connection is closed."""
        self.heal()
        table = f"testhost_{self.port}"
        rules = f"add table inet {table}\nadd chain inet {table} out {{ type filter hook output priority 0; }}\n"
        rules += "".join(f"add rule inet {table} out tcp {side} {self.port} drop\n" for side in ("dport", "sport"))
        subprocess.run(["nft", "-f", "-"], input=rules.encode(), check=True)

    def heal(self) -> None:
        """Undo :meth:`cut`; without one nothing happens."""
        command = ["nft", "delete", "table", "inet", f"testhost_{self.port}"]
        subprocess.run(command, stderr=subprocess.DEVNULL, check=False)

    def hang(self) -> None:
        """Stop every process inside."""
        # One that was just being started may be missed by the first look.
        for _ in range(3):
            self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_all(signal.SIGCONT)

    def reboot(self, *, at_once: bool = False) -> None:
        """Shut it down and boot it again: what is under ``/run`` is gone, what is on its disk is not.

        Args:
            at_once: as when the power fails: nothing is stopped or written first.
        """
        before = self.leader
        self.exec("systemctl", "reboot", *(["--force", "--force"] if at_once else []), check=False)
        deadline = time.monotonic() + BOOT_TIMEOUT_S
        while time.monotonic() < deadline:
            try:
                if self.leader != before:
                    break
            except (BootError, OSError):
                pass
            time.sleep(0.05)
        self._wait_until_up()

    def processes(self) -> dict[int, tuple[str, ...]]:
        """Process id on this machine → its argument list, of everything that runs inside."""
        found = {}
        for pid in self._pids():
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if words:
                found[pid] = tuple(words)
        return found

    def add_user(self, name: str, *, shell: str = "/bin/bash") -> None:
        """A user who logs in with :attr:`key`; also gives ``root`` another login shell."""
        if name == "root":
            self.exec("usermod", "--shell", shell, name)
        elif self.exec("id", name, check=False).returncode:
            self.exec("useradd", "--create-home", "--shell", shell, name)
            # Without a password the account counts as locked, and sshd lets nobody in.
            self.exec("usermod", "--password", "*", name)

    def install_unit(self, name: str, text: str) -> None:
        """Write ``/etc/systemd/system/NAME`` and have it read."""
        self.path(f"/etc/systemd/system/{name}").write_text(text)
        self.exec("systemctl", "daemon-reload")

    def install_engine(self, *flags: str, port: int, unit: str = "ddtree.service") -> str:
        """Install the embedded engine as a system unit, not yet started, and return the unit's name.

        Args:
            flags: of ``ddtree-launch serve``; DDTREE with budget 8 and top-k 4 when there are none.
            port: for its HTTP API; shared with this machine, so take a free one.
        """
        flags = flags or (
            *("--speculative-algorithm", "DDTREE", "--speculative-ddtree-budget", "8", "--speculative-ddtree-topk", "4"),
            "--enable-metrics",
        )
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        command = ["ddtree-launch", "unit", "--engine", "embedded", *flags, "--host", "127.0.0.1", "--port", str(port)]
        text = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        text = text.replace("[Service]\n", f"[Service]\nEnvironment={CACHE_VARIABLE}={MODEL_CACHE}\n", 1)
        self.install_unit(unit, text)
        return unit

    def down(self) -> None:
        """End it and remove everything of it; a second time is fine."""
        if self._keeper is None:
            raise BootError(f"{self.name} belongs to another process, which takes it down")
        assert self._keeper.stdin is not None
        self._keeper.stdin.close()
        self._keeper.wait(timeout=30)
        # The keeper removes it, unless it was killed; its mounts went with it.
        if self.folder.exists():
            shutil.rmtree(self.folder)

    def _pids(self) -> list[int]:
        space = os.readlink(f"/proc/{self.leader}/ns/pid")
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if os.readlink(entry / "ns/pid") == space:
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found

    def _signal_all(self, number: signal.Signals) -> None:
        for pid in self._pids():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def _wait_until_up(self) -> None:
        deadline = time.monotonic() + BOOT_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._keeper is not None and self._keeper.poll() is not None:
                break
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as probe:
                    if probe.recv(64).startswith(b"SSH-2.0"):
                        # Until now the service manager spoke to the console, where a failed boot shows; a real host's speaks to
                        # the journal.
                        self.exec("systemctl", "log-target", "journal-or-kmsg")
                        return
            except OSError:
                pass
            time.sleep(0.05)
        raise BootError(f"the host {self.name} did not come up; {self._console()}")

    def _console(self) -> str:
        said = b""
        for log in ("keeper.log", "console.log"):
            if (self.folder / log).exists():
                said += (self.folder / log).read_bytes()[-1500:]
        return "its console says: " + re.sub(r"\x1b\[[0-9;]*m", "", said.decode(errors="replace"))


def _unseen_folders() -> list[str]:
    """What the overlay over ``/`` does not show: folders on file systems of their own, and those under /tmp, /run and /dev."""
    found = []
    root = os.stat("/").st_dev
    for folder in (PROJECT, Path(sys.prefix), Path(sys.base_prefix), MODEL_CACHE):
        folder = folder.resolve()
        hidden = folder.parts[1:2] in (("tmp",), ("run",), ("dev",))
        if folder.exists() and (hidden or os.stat(folder).st_dev != root):
            found.append(str(folder))
    return found
