"""One systemd manager on a host: the system's, or a user's own. Its commands, as this user or as root, and its errors in words.

``systemctl`` is asked never to ask for a password; where this user may not do something, ``sudo -n`` is tried, which does not
either. What is allowed is found out once.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..evidence.shell import split_shell
from ..evidence.unit_order import object_path
from .systemd_state import PROPERTIES, parse_show
from .transport import Completed, HostError, HostTimeout, Transport

Scope = Literal["system", "user"]
_QUIET = ("--no-pager", "--no-ask-password")
_DENIED = (
    "interactive authentication required",
    "access denied",
    "permission denied",
    "not authorized",
    "authentication is required",
)
_BUS = "org.freedesktop.systemd1"
_DROPPED = (
    b"Transport endpoint is not connected",
    b"Connection reset by peer",
    b"Message recipient disconnected",
    b"Remote peer disconnected",
    b"Failed to connect to bus: Connection refused",
)
"""What a question meets when systemd is re-executed while it is asked, or the host goes down: then the connection ends soon."""
QUEUE_S = 30.0
"""For a job to be queued: systemctl gives up on a manager that does not answer after 25 s by itself (sd_bus_call(3))."""
COMMAND_S = 90.0
"""For a verb that is waited for: daemon-reload runs every generator, and systemctl gives it 90 s."""
REEXEC_S = 5.0
REEXEC_PAUSE_S = 0.2


@dataclass(frozen=True)
class Elevation:
    """How commands get root's rights."""

    prefix: tuple[str, ...] | None
    """What stands before a command: nothing for root, ``sudo -n --``; ``None`` = there is no way."""
    why_not: str = ""
    """Why there is no way, in sudo's words."""

    @property
    def possible(self) -> bool:
        return self.prefix is not None


@dataclass(frozen=True)
class ManagerFacts:
    """What does not change while the console looks at a host."""

    uid: int
    user: str
    home: str
    runtime: str
    """``XDG_RUNTIME_DIR`` of the user."""
    load_path: tuple[str, ...]
    """Folders in which the manager looks for units, in order."""
    environment: dict[str, str]
    """Variables that the manager gives to every service."""
    elevation: Elevation

    @property
    def config_home(self) -> str:
        """Where the user's own units are looked for, by the manager's environment."""
        return self.environment.get("XDG_CONFIG_HOME") or f"{self.home}/.config"


@dataclass(frozen=True)
class LoadedCommand:
    """The command as the manager has loaded it, over D-Bus: exact words, specifiers replaced, variables not."""

    argv: tuple[str, ...]
    environment: dict[str, str]


class Manager:
    """Asks and commands one systemd manager."""

    def __init__(self, transport: Transport, scope: Scope) -> None:
        self.transport = transport
        self.scope: Scope = scope
        self._facts: ManagerFacts | None = None
        self._exact_times = True

    async def facts(self) -> ManagerFacts:
        """Raises: HostError: the manager does not answer."""
        if self._facts is None:
            self._facts = await self._find_facts()
        return self._facts

    async def root(self, argv: Sequence[str]) -> list[str] | None:
        """``argv`` with the rights that changing this manager's files takes; ``None`` when there is no way."""
        elevation = (await self.facts()).elevation
        return [*elevation.prefix, *argv] if elevation.prefix is not None else None

    async def run_root(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 30.0, changes: bool = False
    ) -> Completed:
        """Run with those rights, or as this user when there are none. Raises: HostError."""
        return await self.transport.run(await self.root(argv) or argv, stdin=stdin, timeout=timeout, changes=changes)

    async def systemctl(self, *words: str) -> list[str]:
        """The command for a question, which anyone may ask."""
        return [*await self.environment(), "systemctl", *self._scope_words(), *_QUIET, *words]

    async def show(self, unit: str) -> dict[str, str]:
        """The properties of :data:`PROPERTIES`. Raises: HostError."""
        words = ["show", "--property", PROPERTIES, "--", unit]
        for exact in (True, False) if self._exact_times else (False,):
            # systemd before 247 has no --timestamp and gives whole seconds.
            done = await self._ask(await self.systemctl(*(["--timestamp=us"] if exact else []), *words))
            shown = parse_show(done.stdout)
            if done.ok and shown:
                self._exact_times = exact
                return shown
            if b"timestamp" not in done.stderr:
                break
        raise HostError(f"systemd on {self.transport.name} does not tell about {unit}: {said(done)}")

    async def _ask(self, argv: Sequence[str]) -> Completed:
        """Run a question, again when systemd was being re-executed (a package update does that) and dropped it."""
        until = time.monotonic() + REEXEC_S
        while True:
            done = await self.transport.run(argv)
            if done.ok or not any(text in done.stderr for text in _DROPPED) or time.monotonic() >= until:
                return done
            await asyncio.sleep(REEXEC_PAUSE_S)

    async def loaded(self, unit: str) -> LoadedCommand | None:
        """What the manager would run; ``None`` when it has no such unit, or there is no bus to ask. Raises: HostUnreachable."""
        words = ["get-property", _BUS, object_path(unit), f"{_BUS}.Service", "ExecStart", "Environment"]
        try:
            done = await self._ask([*await self.environment(), "busctl", *self._scope_words(), "--json=short", *words])
            # Not splitlines, which would break a word at U+2028 and the like.
            texts = done.stdout.decode("utf-8", "replace").strip("\n").split("\n")
            lines = [json.loads(text)["data"] for text in texts] if done.ok else []
            commands, environment = lines
        except (HostError, ValueError, KeyError, TypeError):
            return None
        if not commands:
            return None
        pairs = (entry.partition("=") for entry in environment)
        return LoadedCommand(tuple(commands[-1][1]), {name: value for name, _, value in pairs})

    async def command(self, *words: str) -> None:
        """A verb that changes something (``--no-block restart UNIT``).

        Raises:
            HostTimeout: the manager does not answer; it may still do what was asked.
            HostError: it is not allowed, or the manager refuses it.
        """
        timeout = QUEUE_S if "--no-block" in words else COMMAND_S
        plain = await self.systemctl(*words)
        done = await self.transport.run(await self.root(plain) or plain, timeout=timeout, changes=True)
        if done.ok:
            return
        why = said(done)
        denied = any(text in why.lower() for text in _DENIED)
        if denied and self.scope == "system" and not (await self.facts()).elevation.possible:
            # A rule of sudo's may allow this very command though it does not allow everything.
            for form in bare_commands(words):
                again = await self.transport.run(["sudo", "-n", *form], timeout=timeout, changes=True)
                if again.ok:
                    return
            raise HostError(f"{self._name(words)} is not allowed: {why}; and sudo says: {said(again)}")
        raise (HostTimeout if "timed out" in why else HostError)(f"{self._name(words)} failed: {why}")

    def _name(self, words: Sequence[str]) -> str:
        verb = " ".join(word for word in words if not word.startswith("--"))
        return f"systemctl {'--user ' if self.scope == 'user' else ''}{verb} on {self.transport.name}"

    def _scope_words(self) -> tuple[str, ...]:
        return ("--user",) if self.scope == "user" else ()

    async def environment(self) -> tuple[str, ...]:
        """What stands before systemd's own tools: a fixed language and time zone, and where a user's manager is."""
        base = ("env", "TZ=UTC", "LC_ALL=C")
        if self.scope == "system":
            return base
        # A session without PAM, and one through sudo or su, lacks the variable by which a user's manager is found, or has
        # another user's.
        facts = await self.facts()
        return (*base, f"XDG_RUNTIME_DIR={facts.runtime}", f"HOME={facts.home}")

    async def _find_facts(self) -> ManagerFacts:
        # HOME and XDG_RUNTIME_DIR may be another user's after su or sudo; the account's own are asked for.
        script = 'u=$(id -u); echo "$u"; id -un; getent passwd "$u" | cut -d: -f6; echo "/run/user/$u"'
        done = await self.transport.run(["sh", "-c", script])
        lines = done.stdout.decode("utf-8", "replace").splitlines()
        if len(lines) < 4 or not lines[0].isdigit():
            raise HostError(f"{self.transport.name} does not tell who one is there: {said(done)}")
        uid, user, home, runtime = int(lines[0]), lines[1], lines[2], lines[3]
        environment = ("env", "TZ=UTC", "LC_ALL=C", f"XDG_RUNTIME_DIR={runtime}")
        asked = ["systemctl", *self._scope_words(), *_QUIET, "show", "--property", "UnitPath,Environment"]
        done = await self.transport.run([*environment, *asked])
        shown = parse_show(done.stdout)
        if not done.ok or not shown.get("UnitPath"):
            raise HostError(self._no_manager(done))
        # Values with blanks are quoted there, as in a shell.
        variables = (word.partition("=") for word in _words(shown.get("Environment", "")))
        return ManagerFacts(
            uid,
            user,
            home,
            runtime,
            tuple(shown["UnitPath"].split()),
            {name: value for name, equals, value in variables if equals},
            await self._elevation(uid),
        )

    def _no_manager(self, done: Completed) -> str:
        name = self.transport.name
        if self.scope == "user":
            return (
                f"the user's own systemd on {name} does not answer: {said(done)}; it runs while the user is logged in, or always "
                "after: loginctl enable-linger"
            )
        return f"systemd on {name} does not answer: {said(done)}; units can only be managed where systemd runs as process 1"

    async def _elevation(self, uid: int) -> Elevation:
        if uid == 0 or self.scope == "user":
            return Elevation(())
        try:
            done = await self.transport.run(["sudo", "-n", "--", "true"])
        except HostError as error:
            return Elevation(None, str(error))
        return Elevation(("sudo", "-n", "--")) if done.ok else Elevation(None, said(done))


def _words(text: str) -> list[str]:
    return [word.value for word in split_shell(text) if not word.operator]


def bare_commands(words: Sequence[str]) -> tuple[list[str], ...]:
    """A verb as rules of sudo's name it, which match whole commands: without options, the unit with and without its suffix."""
    bare = ["systemctl", *(word for word in words if not word.startswith("-"))]
    short = [word.removesuffix(".service") for word in bare]
    return (bare, short) if short != bare else (bare,)


def said(done: Completed) -> str:
    """What a command that failed said: its first line that says something."""
    lines = [line for line in said_lines(done.stderr) or said_lines(done.stdout) if not line.startswith("See ")]
    return lines[0] if lines else f"status {done.status} and not a word"


def said_lines(data: bytes) -> list[str]:
    """The lines of an output, without those that sudo adds about the host's own name not being in its DNS."""
    lines = (line.strip() for line in data.decode("utf-8", "replace").splitlines())
    return [line for line in lines if line and not line.startswith("sudo: unable to resolve host")]
