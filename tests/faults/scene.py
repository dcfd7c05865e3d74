"""One fault's stage: a booted host with the engine's unit on it, a console that can reach it, and looks at the host itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from engine_launch.embedded.options import PACKAGED_DRAFTER
from tests.testhost import TestHost
from tests.testhost.host import PROJECT

from .console import Console, Missed
from .records import BUDGET, Engine, Setup

UNIT = "engine.service"
SECRET = "sk-must-never-be-shown-4711"
"""The stand-in engine's key: an option of its command line, so it is wherever the command line is."""
STAND_IN = PROJECT / "tests/hosts/stand_in_engine.py"
PROGRAM = "/opt/engine/ddtree-launch"
"""The stand-in on the host, under the launcher's name, so that readers of command lines find the engine's words."""
FOLDERS = ("/etc/systemd/system", "/usr/lib/systemd/system", "/run/systemd/system", "/etc/default", "/etc/sgl")


@dataclass(frozen=True)
class Snapshot:
    """A unit's configuration as the host has it, read without the console."""

    files: dict[str, str]
    """Every file of the unit → digest of its bytes."""
    loaded: tuple[str, ...]
    """The argument array that the service manager has loaded."""


class Scene:
    """Made by :func:`open_scene`."""

    def __init__(self, host: TestHost, console: Console, setup: Setup, folder: Path, jump: TestHost | None) -> None:
        self.host = host
        self.console = console
        self.consoles = [console]
        self.setup = setup
        self.folder = folder
        self.jump = jump
        self.unit = UNIT
        self.port = quiet_port()
        self.before = Snapshot({}, ())
        self.old_argv: tuple[str, ...] = ()
        """Of the engine that ran before; empty when none did."""
        self._heals: list[Callable[[], object]] = []

    # What a fault does to the host

    def exec(self, *argv: str, check: bool = True) -> str:
        """Run a command on the host as root, not over SSH; its standard output."""
        return self.host.exec(*argv, check=check).stdout.decode(errors="replace")

    def shell(self, script: str) -> str:
        return self.exec("/bin/sh", "-ec", script)

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Write a file on the host, with its folder."""
        self.exec("mkdir", "-p", str(Path(path).parent))
        self.host.exec("/bin/sh", "-c", f"cat >{shlex.quote(path)} && chmod {mode:o} {shlex.quote(path)}", stdin=text.encode())

    def systemctl(self, *words: str) -> str:
        return self.exec("systemctl", *words)

    def on_heal(self, action: Callable[[], object]) -> None:
        """What ends the fault; run before the roll-back is tried, the last one first."""
        self._heals.append(action)

    def heal(self) -> None:
        while self._heals:
            self._heals.pop()()

    def pretend(self, program: str, script: str) -> None:
        """Put a program of this name in front of the real one, for everybody on the host. ``REAL`` in it is the real one."""
        real = self.exec("/bin/sh", "-c", f"command -v {program}").strip()
        path = f"/usr/local/bin/{program}"
        assert real != path
        self.write(path, f"#!/bin/sh\n{script.replace('REAL', real)}\n", 0o755)
        self.on_heal(lambda: self.exec("rm", "-f", path))

    # Looks at the host

    def snapshot(self) -> Snapshot:
        names = shlex.quote(self.unit.removesuffix(".service"))
        find = f"find -L {' '.join(FOLDERS)} -path '*/{names}*' -type f -exec sha256sum {{}} + 2>/dev/null || true"
        files = {}
        for line in self.exec("/bin/sh", "-c", find).splitlines():
            digest, _, path = line.partition("  ")
            files[path] = digest
        return Snapshot(files, self.loaded())

    def loaded(self) -> tuple[str, ...]:
        """The argument array over D-Bus; empty when the unit is not there."""
        service = "org.freedesktop.systemd1"
        call = ("call", service, "/org/freedesktop/systemd1", f"{service}.Manager", "LoadUnit", "s", self.unit)
        path = json.loads(self.exec("busctl", "--json=short", *call))["data"][0]
        said = self.exec("busctl", "--json=short", "get-property", service, path, f"{service}.Service", "ExecStart", check=False)
        entries = json.loads(said)["data"] if said else []
        return tuple(entries[0][1]) if entries else ()

    def shown(self, name: str, unit: str = "") -> str:
        """A property of a unit, of the engine's when none is named."""
        return self.exec("systemctl", "show", "--value", "--property", name, unit or self.unit).strip()

    @property
    def invocation(self) -> str:
        return self.shown("InvocationID")

    def argv(self) -> tuple[str, ...]:
        """The running engine's command line, as the kernel has it; empty when nothing runs."""
        pid = self.shown("MainPID")
        if pid in ("", "0"):
            return ()
        text = self.exec("/bin/sh", "-c", f"tr '\\0' '\\n' </proc/{pid}/cmdline", check=False)
        return tuple(text.splitlines())

    def in_effect(self) -> dict[str, object]:
        """What the engine itself says it uses now; empty when it does not answer."""
        with contextlib.suppress(httpx.HTTPError, ValueError, KeyError, IndexError):
            answer = httpx.get(f"http://127.0.0.1:{self.port}/server_info", headers=self.headers, timeout=10)
            found = answer.raise_for_status().json()["internal_states"][0]
            return {
                "tree_budget": found.get("speculative_ddtree_budget"),
                "draft_window": found.get("speculative_draft_window_size"),
            }
        return {}

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {SECRET}"} if self.setup.engine is Engine.STAND_IN else {}

    def another_console(self) -> Console:
        """A colleague's: it may log in as the first may, and knows nothing of what the first did."""
        home = self.folder / "colleague"
        shutil.copytree(self.console.home / ".ssh", home / ".ssh")
        other = Console(home, self.console.words, (self.console.state / "config/config.toml").read_text())
        self.consoles.append(other)
        return other

    def end_consoles(self) -> None:
        for console in self.consoles:
            console.end_all()

    def make_key(self, name: str) -> Path:
        """A new SSH key that no host knows; its private half."""
        path = self.folder / name
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
        return path

    async def wait_for(self, condition: Callable[[], bool], what: str, patience: float = 60.0) -> None:
        until = time.monotonic() + patience
        while not condition():
            if time.monotonic() > until:
                raise Missed(f"{what}: not so after {patience:g} s")
            await asyncio.sleep(0.03)

    def healthy(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/health", headers=self.headers, timeout=5).is_success
        except httpx.HTTPError:
            return False

    # The unit

    def command(self) -> tuple[str, ...]:
        """The engine's command line as the unit file has it at first."""
        tree = ("--speculative-algorithm", "DDTREE", "--speculative-ddtree-budget", str(BUDGET), "--speculative-ddtree-topk", "4")
        flags = (*tree, "--host", "127.0.0.1", "--port", str(self.port), *self.setup.flags)
        if self.setup.engine is Engine.EMBEDDED:
            return (sys.executable, "-m", "engine_launch", "serve", "--engine", "embedded", *flags, "--enable-metrics")
        # What the launcher asks of a start of SGLang with DDTREE.
        sglang = ("--speculative-draft-model-path", str(PACKAGED_DRAFTER), "--attention-backend", "triton", "--page-size", "1")
        more = sglang if "foreign" in self.setup.faults else ()
        return (sys.executable, "-I", PROGRAM, "serve", *flags, *more, "--api-key", SECRET)

    def unit_text(self, command: Sequence[str] = ()) -> str:
        from engine_launch.embedded.model_files import CACHE_VARIABLE, cache_folder

        words = " ".join(command or self.command())
        start = f"/bin/bash -c '{self.setup.wrapped.replace('ENGINE', words)}'" if self.setup.wrapped else words
        lines = ["[Unit]", "Description=an engine", *self.setup.unit, "", "[Service]"]
        lines += [f"Environment={CACHE_VARIABLE}={cache_folder()}", f"WorkingDirectory={PROJECT}", "TimeoutStopSec=5"]
        lines += [f'Environment="STAND_IN_FAULTS={self.setup.faults}"'] if self.setup.faults else []
        end = ["", "[Install]", "WantedBy=basic.target"] if self.setup.install else []
        return "\n".join([*lines, *self.setup.service, f"ExecStart={start}", *end, ""])

    def install(self) -> None:
        self.exec("mkdir", "-p", str(Path(PROGRAM).parent))
        self.exec("ln", "-sf", str(STAND_IN), PROGRAM)
        self.write(f"{self.setup.folder}/{self.unit}", self.unit_text())
        self.systemctl("daemon-reload")
        if self.setup.install:
            self.systemctl("enable", self.unit)

    async def start(self) -> None:
        """Start the unit with the console, so that what it has is a confirmed configuration. Raises: Missed."""
        ended = await self.console.run("start")
        document = ended.document or {}
        if ended.code != 0 or document.get("confirmed") is not True:
            raise Missed(f"the first start was not confirmed (exit status {ended.code}): {document.get('reason') or ended.err}")

    async def start_by_hand(self) -> None:
        """Start the unit without the console, which could not confirm it or may not do it; what runs then is the old
        configuration. Raises: Missed."""
        self.systemctl("start", self.unit)
        await self.wait_for(self.healthy, "the engine answers")
        self.note_old()

    def note_old(self) -> None:
        """From here on, *the old configuration* is what the host has now."""
        self.before, self.old_argv = self.snapshot(), self.argv()


def quiet_port() -> int:
    """A port that nobody listens on, and that no outgoing connection of this machine, which shares it, will happen to take: the
    kernel takes those from 32768 on (ip_local_port_range)."""
    while True:
        port = random.randrange(21_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def ssh_config(host: TestHost, jump: TestHost | None, user: str) -> str:
    hop = (
        f"  ProxyJump bastion\n\nHost bastion\n  HostName 127.0.0.1\n  Port {jump.port}\n  User root\n  IdentityFile {jump.key}\n"
        if jump
        else ""
    )
    return f"Host gpu-a\n  HostName 127.0.0.1\n  Port {host.port}\n  User {user}\n  IdentityFile {host.key}\n{hop}"


@contextlib.contextmanager
def open_scene(setup: Setup) -> Iterator[Scene]:
    """Boot the host (and its jump host), install the unit, make the console; all gone at the end."""
    folder = Path(tempfile.mkdtemp(prefix="ddtree-fault-"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        host = stack.enter_context(TestHost.boot("gpu-a"))
        jump = stack.enter_context(TestHost.boot("bastion")) if setup.jump else None
        if setup.user != "root":
            host.add_user(setup.user)
        home = folder / "home"
        (home / ".ssh").mkdir(parents=True, mode=0o700)
        (home / ".ssh/config").write_text(ssh_config(host, jump, setup.user))
        known = host.known_hosts_line() + (jump.known_hosts_line() if jump else "")
        (home / ".ssh/known_hosts").write_text(known)
        config = f"[apply]\nready_timeout_s = {setup.ready_timeout_s}\n\n[sampling]\ninterval_s = 0.5\n"
        console = Console(home, ("--host", "gpu-a", "--unit", UNIT), config)
        scene = Scene(host, console, setup, folder, jump)
        stack.callback(scene.end_consoles)
        stack.callback(host.heal)
        scene.install()
        yield scene
