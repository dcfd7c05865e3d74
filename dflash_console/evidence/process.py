"""A process as ``/proc`` shows it: command line, environment, control group, moment of its start (proc(5))."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from .secrets import mask_environment, mask_text
from .terminal_text import one_line
from .values import whole


@dataclass(frozen=True)
class ProcessEvidence:
    """What is known about one process. The argument list is as the kernel has it; mask it before it is shown."""

    pid: int
    argv: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Values of secret variables are masked when it is read."""
    cgroup: str = ""
    """Path in the unified hierarchy: ``/system.slice/prod-sgl.service``."""
    started_ticks: int | None = None
    """Clock ticks between boot and start; with the pid it identifies the process for ever."""
    parent: int | None = None
    name: str = ""
    state: str = ""
    """``R``, ``S``, ``Z`` …"""
    problems: tuple[str, ...] = ()
    """What could not be read, and so is not known."""

    @property
    def unit(self) -> str:
        """The systemd unit whose control group the process is in; empty when it is in none."""
        parts = [part for part in self.cgroup.split("/") if part.endswith((".service", ".scope"))]
        return parts[-1] if parts else ""

    @property
    def container(self) -> str:
        """The container that the process is in, by its runtime and the beginning of its id: ``docker 0f3c…``; empty = in none."""
        return container_of(self.cgroup)

    @property
    def called(self) -> str:
        """How it calls itself, fit to be shown: its program or the title that it gave itself, else the kernel's name for it.

        A title may be a whole command line in one word, and anybody may put anything into it.
        """
        return one_line(mask_text(self.argv[0] if self.argv else self.name))

    @property
    def zombie(self) -> bool:
        return self.state == "Z"


_SCOPE = re.compile(r"(?P<runtime>docker|libpod|crio|cri-containerd|nerdctl)-(?P<id>[0-9a-f]{12,64})\.scope")
_FOLDER = re.compile(r"/(?P<runtime>docker|lxc|kubepods)(?:[^/]*/)+?(?P<id>[0-9a-f]{64})(?=/|$)")
_RUNTIMES = {"libpod": "podman", "cri-containerd": "containerd", "crio": "cri-o", "kubepods": "kubernetes"}


def container_of(cgroup: str) -> str:
    """The container that a control group belongs to, as its runtime names the group; empty when it is none's."""
    found = _SCOPE.search(cgroup) or _FOLDER.search(cgroup)
    return f"{_RUNTIMES.get(found['runtime'], found['runtime'])} {found['id'][:12]}" if found is not None else ""


def parse_process(
    pid: int,
    *,
    cmdline: bytes | None,
    environ: bytes | None = None,
    cgroup: bytes | None = None,
    stat: bytes | None = None,
) -> ProcessEvidence:
    """Read the bytes of ``/proc/PID/{cmdline,environ,cgroup,stat}``; ``None`` = that file could not be read."""
    problems: list[str] = []
    if cmdline is None:
        problems.append("the command line cannot be read")
    elif not cmdline:
        problems.append("the command line is empty: a kernel thread, or a process that is ending")
    name, state, parent, ticks = _stat(stat) if stat is not None else ("", "", None, None)
    if stat is not None and ticks is None:
        problems.append("the process's stat line cannot be read")
    return ProcessEvidence(
        pid=pid,
        argv=parse_cmdline(cmdline or b""),
        environ=parse_environ(environ or b""),
        cgroup=_cgroup(cgroup or b""),
        started_ticks=ticks,
        parent=parent,
        name=name,
        state=state,
        problems=tuple(problems),
    )


def parse_cmdline(data: bytes) -> tuple[str, ...]:
    """Words of a NUL-separated command line. A process that rewrote its title (``sglang::scheduler``) gives one word."""
    if not data:
        return ()
    words = data.removesuffix(b"\0").split(b"\0")
    if len(words) > 1 and not any(words[1:]):
        words = words[:1]
    return tuple(word.decode("utf-8", errors="replace") for word in words)


def parse_environ(data: bytes) -> dict[str, str]:
    """Variables of a NUL-separated environment, secret values masked."""
    pairs = (item.partition(b"=") for item in data.split(b"\0") if b"=" in item)
    found = {name.decode("utf-8", errors="replace"): value.decode("utf-8", errors="replace") for name, _, value in pairs}
    return mask_environment(found)


def split_by_process(data: bytes, name: str, separator: bytes) -> dict[int, bytes]:
    """What ``grep -H '' /proc/[0-9]*/NAME`` printed, by process; each record begins with its file's path and a colon."""
    found: dict[int, list[bytes]] = {}
    for record in data.split(separator):
        path, colon, rest = record.partition(b":")
        parts = path.split(b"/")
        if colon and len(parts) == 4 and parts[1] == b"proc" and parts[3] == name.encode() and parts[2].isdigit():
            found.setdefault(int(parts[2]), []).append(rest)
    return {pid: separator.join(records) + separator for pid, records in found.items()}


def _cgroup(data: bytes) -> str:
    """The unified hierarchy's path (``0::/…``), else that of the systemd hierarchy of version 1."""
    named = ""
    for line in data.decode("utf-8", errors="replace").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            return path
        if controllers == "name=systemd":
            named = path
    return named


def _stat(data: bytes) -> tuple[str, str, int | None, int | None]:
    """(name, state, parent, start ticks). The name is in brackets and may hold blanks and brackets itself."""
    text = data.decode("utf-8", errors="replace")
    open_at, close_at = text.find("("), text.rfind(")")
    rest = text[close_at + 1 :].split()
    if open_at < 0 or close_at < 0 or len(rest) < 20:
        return "", "", None, None
    parent, ticks = rest[1], rest[19]
    return (
        text[open_at + 1 : close_at],
        rest[0],
        whole(parent),
        whole(ticks),
    )
