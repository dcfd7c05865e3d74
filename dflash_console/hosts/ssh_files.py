"""Files of a host, through commands: SFTP's errors do not tell a full disk from a read-only one, and some hosts have none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .replace_file import replace_command
from .transport import Completed, FileStat, HostError, HostFileError

FILE_TIMEOUT_S = 60.0


class Run(Protocol):
    async def __call__(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = FILE_TIMEOUT_S, shown: Sequence[str], changes: bool
    ) -> Completed: ...


_REMOVE = r"""
rm -f -- "$1" || exit 1
case $1 in */*) sync -- "${1%/*}/" 2>/dev/null ;; esac || :
"""


async def read(run: Run, path: str, offset: int, limit: int | None) -> bytes:
    count = [] if limit is None else [f"count={limit}"]
    argv = ["dd", f"if={path}", "bs=64K", "iflag=skip_bytes,count_bytes,fullblock", f"skip={offset}", *count, "status=none"]
    if limit == 0:
        return b""
    done = await run(argv, shown=argv, changes=False)
    # What lies behind the end is nothing, as it is for a local file.
    if not done.ok and b"cannot skip" not in done.stderr:
        raise _failed("read", path, done)
    return done.stdout


async def stat(run: Run, path: str) -> FileStat:
    argv = ["stat", "-L", "-c", "%s %a %u %g %.9Y %i", "--", path]
    done = await run(argv, shown=argv, changes=False)
    if not done.ok:
        raise _failed("read", path, done)
    try:
        size, mode, uid, gid, mtime, inode = done.stdout.decode("ascii").split()
        return FileStat(int(size), int(mode, 8), int(uid), int(gid), float(mtime), int(inode))
    except ValueError:
        raise HostError(f"stat on the host answered {done.stdout[:100]!r} about {path}; GNU coreutils are needed there") from None


async def mtimes(run: Run, paths: Sequence[str]) -> dict[str, float | None]:
    found: dict[str, float | None] = dict.fromkeys(paths)
    if not paths:
        return found
    argv = ["stat", "-L", r"--printf=%.9Y %n\0", "--", *paths]
    # Its status tells only that one of them is not there.
    done = await run(argv, shown=argv, changes=False)
    for entry in done.stdout.split(b"\0")[:-1]:
        changed, _, name = entry.decode("utf-8", "surrogateescape").partition(" ")
        if name in found:
            found[name] = float(changed)
    return found


async def write(run: Run, path: str, data: bytes, mode: int) -> None:
    argv = replace_command(path, len(data), mode)
    done = await run(argv, stdin=data, shown=("write", path, f"{len(data)} bytes"), changes=True)
    if not done.ok:
        raise _failed("write", path, done)


async def make_folder(run: Run, path: str) -> None:
    done = await run(["/bin/sh", "-c", 'umask 077; mkdir -p -- "$1"', "mkdir", path], shown=("mkdir", "-p", path), changes=True)
    if not done.ok:
        raise _failed("create", path, done)


async def remove(run: Run, path: str) -> None:
    done = await run(["/bin/sh", "-c", _REMOVE, "rm", path], shown=("rm", "-f", path), changes=True)
    if not done.ok:
        raise _failed("remove", path, done)


async def listdir(run: Run, path: str) -> tuple[str, ...]:
    argv = ["find", "-H", path, "-mindepth", "1", "-maxdepth", "1", "-printf", r"%f\0"]
    if path.startswith(("-", "(", ")", "!", ",")):
        argv[2] = f"./{path}"
    done = await run(argv, shown=argv, changes=False)
    if not done.ok:
        error = _failed("list", path, done)
        if error.missing:
            return ()
        raise error
    return tuple(sorted(name.decode("utf-8", "surrogateescape") for name in done.stdout.split(b"\0")[:-1]))


_FULL = {
    "No space left on device": "no space left on the device; free some and try again",
    "Disk quota exceeded": "the disk quota is used up; free some space and try again",
    "Read-only file system": "the file system is read-only",
    "File too large": "the file would exceed the allowed size",
}
_DENIED = {"Permission denied": "permission denied", "Operation not permitted": "the operation is not permitted"}
_MISSING = {
    "No such file or directory": "there is no such file",
    "Not a directory": "a part of its path is no folder",
    "No such process": "there is no such process",
}


def _failed(verb: str, path: str, done: Completed) -> HostFileError:
    """The error, told from what the host's programs say; they speak English, because the locale is set so."""
    said = done.stderr.decode("utf-8", "replace").strip()
    for words, kind in ((_FULL, "full"), (_DENIED, "denied"), (_MISSING, "missing")):
        for phrase, reason in words.items():
            if phrase in said:
                flags = {name: name == kind for name in ("missing", "denied", "full")}
                return HostFileError(path, f"cannot {verb} {path}: {reason}", **flags)
    last = said.splitlines()[-1] if said else f"the host's programs ended with status {done.status} and said nothing"
    return HostFileError(path, f"cannot {verb} {path}: {last}")
