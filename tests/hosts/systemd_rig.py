"""A real systemd on a test host: units to try things on, and a transport that acts as one user in everything."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from dflash_console.hosts.systemd import SystemdService
from dflash_console.hosts.transport import Completed, FileStat, HostFileError
from tests.testhost import TestHost

from .inside import InsideTransport

SHOW_ARGS = """#!/bin/sh
printf '%s\\0' "$0" "$@" > "/tmp/$2.argv"
trap 'exit 0' TERM
while :; do sleep 0.2; done
"""


_CLEAN = """
systemctl kill -s KILL "$1"; systemctl stop "$1"; systemctl reset-failed "$1"
rm -rf "/etc/systemd/system/$1" "/etc/systemd/system/$1.d"
"""


class UserTransport(InsideTransport):
    """As :class:`InsideTransport`, with files too read and written as the user, so that what is not allowed fails."""

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        count = f"head -c {limit}" if limit is not None else "cat"
        done = await self.run(["sh", "-c", f'tail -c +{offset + 1} -- "$1" | {count}; test -r "$1" || cat -- "$1"', "sh", path])
        self._raise(path, done)
        return done.stdout

    async def stat(self, path: str) -> FileStat:
        done = await self.run(["stat", "-L", "--printf", "%s %a %u %g %.9Y %i", "--", path])
        self._raise(path, done)
        size, mode, uid, gid, mtime, inode = done.stdout.decode().split()
        return FileStat(int(size), int(mode, 8), int(uid), int(gid), float(mtime), int(inode))

    async def listdir(self, path: str) -> tuple[str, ...]:
        done = await self.run(["ls", "-A", "--", path])
        return tuple(done.stdout.decode().splitlines())

    async def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        self._raise(
            path, await self.run(["sh", "-c", 'cat > "$1.new" && mv "$1.new" "$1"', "sh", path], stdin=data, changes=True)
        )

    async def make_folder(self, path: str) -> None:
        self._raise(path, await self.run(["mkdir", "-m", "700", "-p", "--", path], changes=True))

    async def remove(self, path: str) -> None:
        self._raise(path, await self.run(["rm", "-f", "--", path], changes=True))

    def _raise(self, path: str, done: Completed) -> None:
        said = done.stderr.decode()
        if not done.ok:
            raise HostFileError(path, said.strip(), missing="No such file" in said, denied="ermission denied" in said)


class Rig:
    """Units on one host, removed at the end."""

    def __init__(self, host: TestHost) -> None:
        self.host = host
        self._made: list[str] = []
        program = host.path("/usr/local/bin/ddtree-launch")
        if not program.exists():
            program.write_text(SHOW_ARGS)
            program.chmod(0o755)

    def write(self, path: str, text: str, *, mode: int = 0o644) -> None:
        file = self.host.path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
        file.chmod(mode)

    def unit(self, name: str, text: str, **drop_ins: str) -> None:
        """A system unit, with drop-ins by name (``a10`` → ``a10.conf``), read by systemd."""
        self.write(f"/etc/systemd/system/{name}", text)
        self._made.append(name)
        for drop_in, body in drop_ins.items():
            self.write(f"/etc/systemd/system/{name}.d/{drop_in}.conf", body)
        self.reload()

    def reload(self) -> None:
        self.host.exec("systemctl", "daemon-reload")

    def path(self, path: str) -> Path:
        return self.host.path(path)

    def service(self, unit: str, *, user: str = "root") -> SystemdService:
        return SystemdService(UserTransport(self.host, user=user), unit, author="ada@desk", job_timeout=20.0)

    def argv(self, name: str) -> tuple[str, ...]:
        """What the program started with ``name`` as its first argument got."""
        data = self.path(f"/tmp/{name}.argv").read_bytes()
        return tuple(word.decode() for word in data.split(b"\0")[:-1])

    def clean(self) -> None:
        for name in self._made:
            self.host.exec("sh", "-c", _CLEAN, "sh", name, check=False)
        self.reload()


@contextlib.asynccontextmanager
async def rig_on(host: TestHost) -> AsyncIterator[Rig]:
    rig = Rig(host)
    try:
        yield rig
    finally:
        rig.clean()


@pytest.fixture
async def rig(testhost: TestHost) -> AsyncIterator[Rig]:
    """On the host that all tests of the run share."""
    async with rig_on(testhost) as made:
        yield made


def unit_text(*words: str, extra: str = "") -> str:
    """A service of Type=simple that runs the stand-in; words as they are to stand in ExecStart."""
    return f"[Service]\n{extra}ExecStart=/usr/local/bin/ddtree-launch serve {' '.join(words)}\n"


def names(paths: Sequence[str]) -> list[str]:
    return [path.rpartition("/")[2] for path in paths]
