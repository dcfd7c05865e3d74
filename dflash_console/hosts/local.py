"""This machine as a host: commands as child processes, files through the operating system."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Sequence

from ..paths import read_file, sync_folder
from .transport import CommandLog, Completed, FileStat, HostError, HostFileError, HostTimeout, Link, LinkStatus

_NOT_STARTED = 127
"""The status that a shell gives a command that it could not start: SSH records the same."""


class LocalTransport:
    """A :class:`~dflash_console.hosts.transport.Transport` without a network. File work runs in threads, because a home folder
    may be a network file system that stalls."""

    def __init__(self, name: str = "this machine") -> None:
        self._name = name
        self._commands = CommandLog()
        self._link = Link(LinkStatus.UP, time.monotonic())

    @property
    def name(self) -> str:
        return self._name

    @property
    def commands(self) -> CommandLog:
        return self._commands

    @property
    def link(self) -> Link:
        return self._link

    async def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 30.0, changes: bool = False) -> Completed:
        begun = time.monotonic()
        process = await self._spawn(argv, stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL)
        try:
            async with asyncio.timeout(timeout):
                out, err = await process.communicate(stdin or None)
        except TimeoutError:
            await _end(process)
            self._commands.add(argv, None, time.monotonic() - begun, changes=changes)
            raise HostTimeout(f"{argv[0]} did not end within {timeout:g} s and was stopped") from None
        except asyncio.CancelledError:
            await _end(process)
            self._commands.add(argv, None, time.monotonic() - begun, changes=changes)
            raise
        seconds = time.monotonic() - begun
        status = process.returncode if process.returncode is not None else -1
        self._commands.add(argv, status, seconds, changes=changes)
        return Completed(tuple(argv), status, out, err, seconds)

    @contextlib.asynccontextmanager
    async def stream(self, argv: Sequence[str]) -> AsyncIterator[AsyncIterator[bytes]]:
        begun = time.monotonic()
        # Nobody reads the errors of a stream, and a full pipe would stop the command.
        process = await self._spawn(argv, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL)
        try:
            yield _chunks(process)
        finally:
            await _end(process)
            self._commands.add(argv, process.returncode, time.monotonic() - begun)

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        return await asyncio.to_thread(_read, path, offset, limit)

    async def stat(self, path: str) -> FileStat:
        return await asyncio.to_thread(_stat, path)

    async def mtimes(self, paths: Sequence[str]) -> dict[str, float | None]:
        found: dict[str, float | None] = dict.fromkeys(paths)
        for path in paths:
            with contextlib.suppress(HostFileError):
                found[path] = (await self.stat(path)).mtime
        return found

    async def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        await asyncio.to_thread(_write, path, data, mode)

    async def make_folder(self, path: str) -> None:
        await asyncio.to_thread(_make_folder, path)

    async def remove(self, path: str) -> None:
        await asyncio.to_thread(_remove, path)

    async def listdir(self, path: str) -> tuple[str, ...]:
        return await asyncio.to_thread(_listdir, path)

    @contextlib.asynccontextmanager
    async def forward(self, port: int, *, address: str = "127.0.0.1") -> AsyncIterator[str]:
        yield f"http://{f'[{address}]' if ':' in address else address}:{port}"

    async def now(self) -> float:
        return time.time()

    async def close(self) -> None:
        """Nothing is held open."""

    async def _spawn(
        self, argv: Sequence[str], *, stdin: int, stderr: int = asyncio.subprocess.PIPE
    ) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        # A session of its own: ctrl-c in the console's terminal must not reach a command that changes a host.
        spawning = asyncio.ensure_future(
            asyncio.create_subprocess_exec(*argv, stdin=stdin, stdout=pipe, stderr=stderr, start_new_session=True)
        )
        try:
            return await asyncio.shield(spawning)
        except asyncio.CancelledError:
            # Cancelled half-way, asyncio would kill the command alone, and wait for the pipes that its children hold.
            with contextlib.suppress(OSError, ValueError):
                await _end(await spawning)
            raise
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            self._commands.add(argv, _NOT_STARTED, 0.0)
            raise HostError(f"{argv[0] if argv else 'an empty command'} could not be started: {reason}") from None


async def _end(process: asyncio.subprocess.Process) -> None:
    # The whole session: what the command started would go on, and hold the pipes open for which the wait waits.
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(2.0):
                await _drained(process)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    # A process that hangs in a driver cannot be killed before the driver lets go of it; nobody waits for that.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2.0):
            await _drained(process)


async def _drained(process: asyncio.subprocess.Process) -> None:
    """Wait for the process's end. What nobody reads any more is read away: a full pipe is never seen to end."""
    for pipe in (process.stdout, process.stderr):
        with contextlib.suppress(RuntimeError):  # Somebody still reads it.
            while pipe is not None and await pipe.read(65_536):
                pass
    await process.wait()


async def _chunks(process: asyncio.subprocess.Process) -> AsyncIterator[bytes]:
    assert process.stdout is not None
    while chunk := await process.stdout.read(65_536):
        yield chunk


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG})
_DENIED = frozenset({errno.EACCES, errno.EPERM})
_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESRCH})
_ADVICE = {
    errno.ENOSPC: "no space left on the device; free some and try again",
    errno.EDQUOT: "the disk quota is used up; free some space and try again",
    errno.EROFS: "the file system is read-only",
    errno.EFBIG: "the file would exceed the allowed size",
    errno.EACCES: "permission denied",
    errno.EPERM: "the operation is not permitted",
    errno.ENOENT: "there is no such file",
}


def _failed(verb: str, path: str, error: OSError) -> HostFileError:
    reason = _ADVICE.get(error.errno or 0, error.strerror or str(error))
    return HostFileError(
        path,
        f"cannot {verb} {path}: {reason}",
        missing=error.errno in _MISSING,
        denied=error.errno in _DENIED,
        full=error.errno in _FULL,
    )


def _read(path: str, offset: int, limit: int | None) -> bytes:
    try:
        return read_file(path, offset=offset, limit=limit)
    except OSError as error:
        raise _failed("read", path, error) from None


def _stat(path: str) -> FileStat:
    try:
        found = os.stat(path)
    except OSError as error:
        raise _failed("read", path, error) from None
    return FileStat(found.st_size, found.st_mode & 0o7777, found.st_uid, found.st_gid, found.st_mtime, found.st_ino)


def _write(path: str, data: bytes, mode: int) -> None:
    """Write beside the file, then rename over it: a reader, a crash or a full disk sees the old text or the new, never half."""
    folder, name = os.path.split(path)
    temporary = ""
    try:
        # A symbolic link is the user's arrangement: what it points to is replaced, not the link.
        if os.path.islink(path):
            path = os.path.realpath(path)
            folder, name = os.path.split(path)
        handle, temporary = tempfile.mkstemp(prefix=f".{name}.", suffix=".new", dir=folder or ".")
        try:
            with contextlib.suppress(FileNotFoundError):
                found = os.stat(path)
                mode = found.st_mode & 0o7777
                if (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(handle, found.st_uid, found.st_gid)
            os.fchmod(handle, mode)
            view = memoryview(data)
            while view:
                view = view[os.write(handle, view) :]
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(temporary, path)
        sync_folder(folder or ".")
    except OSError as error:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise _failed("write", path, error) from None


def _make_folder(path: str) -> None:
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except OSError as error:
        raise _failed("create", path, error) from None


def _remove(path: str) -> None:
    try:
        os.unlink(path)
        sync_folder(os.path.dirname(path) or ".")
    except FileNotFoundError:
        return
    except OSError as error:
        raise _failed("remove", path, error) from None


def _listdir(path: str) -> tuple[str, ...]:
    try:
        return tuple(sorted(os.listdir(path)))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise _failed("list", path, error) from None
