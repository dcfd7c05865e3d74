"""Where a unit's outputs go: the journal, files, or nowhere that can be read (``StandardOutput=`` and ``StandardError=``,
systemd.exec(5)). Engines log to either.

The manager tells the kind, not the file's path; that is read from the unit's text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..evidence.unit import UnitSource, read_unit
from ..evidence.unit_specifiers import UnitName, replace_specifiers
from .journald_query import JournalQuery
from .transport import HostFileError, Transport

_FILES = frozenset({"append", "truncate", "file"})
_JOURNAL = frozenset({"journal", "journal+console", "kmsg", "kmsg+console", "syslog", "syslog+console", "inherit", ""})
"""``inherit`` is what the manager's default is taken from; unless configured otherwise, that is the journal."""
_SYSTEM_PLACES = {"t": "/run", "S": "/var/lib", "C": "/var/cache", "L": "/var/log", "E": "/etc", "h": "/root", "u": "root"}


_OUT, _ERR = "StandardOutput", "StandardError"
_NAMES = {_OUT: "the output", _ERR: "the error output"}


@dataclass(frozen=True)
class UnitOutput:
    """Where the lines of one output are, as the manager has loaded it."""

    kind: str = "journal"
    """``journal``, ``append``, ``truncate``, ``file``, or ``elsewhere``."""
    path: str = ""
    said: str = ""
    """For the log: where the output goes, when it is not the journal, and what follows from that."""

    @property
    def unseen(self) -> bool:
        """What is printed there cannot be read, or not be told from what earlier starts printed."""
        return self.kind in ("file", "elsewhere")


@dataclass(frozen=True)
class UnitOutputs:
    """Where all lines of a unit are."""

    sinks: tuple[UnitOutput, ...] = (UnitOutput(),)
    """Of the output and, where it goes elsewhere, of the error output."""
    namespace: str = ""
    """The journal of its own that the unit logs to (``LogNamespace=``); empty = the host's."""

    @property
    def files(self) -> tuple[UnitOutput, ...]:
        """Those that can be followed beside the journal."""
        return tuple(sink for sink in self.sinks if sink.kind in ("append", "truncate"))

    @property
    def said(self) -> tuple[UnitOutput, ...]:
        """Those of which the log has to tell something."""
        return tuple(sink for sink in self.sinks if sink.said)


def manager_command(query: JournalQuery) -> tuple[str, ...]:
    """``systemctl`` for the manager that runs the unit."""
    if query.scope == "system":
        return ("systemctl",)
    # A login without a session of its own, as SSH gives, does not know where its manager listens.
    return ("env", f"XDG_RUNTIME_DIR=/run/user/{query.uid}", "systemctl", "--user")


async def current_start(transport: Transport, query: JournalQuery) -> str | None:
    """The invocation id that the manager shows now. Raises: HostError."""
    done = await transport.run([*manager_command(query), "show", "--property=InvocationID", "--value", query.unit])
    return done.stdout.decode("ascii", "replace").strip() or None


_LOOK = """\
path=$1
shift
stat -L -c '%i %s' -- "$path" 2>/dev/null || echo
"$@"
stat -L -c '%i %s' -- "$path" 2>/dev/null || echo
"""


@dataclass(frozen=True)
class Extent:
    """Which file stands under a name, and its size in bytes."""

    inode: int
    size: int


@dataclass(frozen=True)
class Look:
    """The file, then the start's id, then the file again."""

    file: Extent | None
    start: str | None
    size_after: int
    """0 when there was no file."""


async def look_at(transport: Transport, query: JournalQuery, path: str) -> Look:
    """Look at an output file on both sides of asking for the start's id, in one command on the host.

    What is written between the two sides can be attributed to nobody, so they stand as close as they can: a round trip between
    them may be longer than an engine takes to print its first lines.

    Raises:
        HostError
    """
    show = [*manager_command(query), "show", "--property=InvocationID", "--value", query.unit]
    done = await transport.run(["sh", "-c", _LOOK, "sh", path, *show])
    first, *said, last = done.stdout.decode("ascii", "replace").split("\n")[:-1] or ("", "")
    after = _extent(last)
    return Look(_extent(first), said[0].strip() or None if said else None, after.size if after is not None else 0)


def _extent(line: str) -> Extent | None:
    inode, _, size = line.partition(" ")
    return Extent(int(inode), int(size)) if inode.isdigit() and size.isdigit() else None


async def find_outputs(transport: Transport, query: JournalQuery) -> UnitOutputs:
    """Where the unit's outputs go. What cannot be found out counts as the journal, where at least the manager's lines are.

    Raises:
        HostUnreachable
    """
    asked = (_OUT, _ERR, "FragmentPath", "DropInPaths", "LogNamespace")
    done = await transport.run([*manager_command(query), "show", f"--property={','.join(asked)}", query.unit])
    shown = dict(line.partition("=")[::2] for line in done.stdout.decode("utf-8", "replace").splitlines())
    kinds = {setting: shown.get(setting, "") for setting in (_OUT, _ERR)}
    if kinds[_ERR] == "inherit":
        del kinds[_ERR]
    if not _FILES & set(kinds.values()):
        sinks = [_without_file(query.unit, setting, kind) for setting, kind in kinds.items()]
    else:
        files = [path for path in (shown.get("FragmentPath", ""), *shown.get("DropInPaths", "").split()) if path]
        sinks = await _with_files(transport, query, kinds, files)
    found: dict[str, UnitOutput] = {}
    for sink in sinks:
        found.setdefault(sink.path or sink.said, sink)
    return UnitOutputs(tuple(found.values()), shown.get("LogNamespace", ""))


def _without_file(unit: str, setting: str, kind: str) -> UnitOutput:
    if kind in _JOURNAL:
        return UnitOutput()
    return UnitOutput("elsewhere", said=f"[{_NAMES[setting]} of {unit} is not in the journal: {setting}={kind}]")


async def _with_files(
    transport: Transport, query: JournalQuery, kinds: Mapping[str, str], files: Sequence[str]
) -> list[UnitOutput]:
    problem = ""
    sources = []
    try:
        sources = [UnitSource(path, (await transport.read(path)).decode("utf-8", "replace")) for path in files]
    except HostFileError as error:
        problem = str(error)
    unit = read_unit(sources)
    values = {**UnitName(query.unit).specifiers(), **(await _places(transport, query))}
    found = []
    for setting, kind in kinds.items():
        if kind not in _FILES:
            found.append(_without_file(query.unit, setting, kind))
            continue
        of = f"{_NAMES[setting]} of {query.unit} goes to"
        named = unit.output_file(setting) or ""
        path = replace_specifiers(named, values)
        if problem:
            found.append(UnitOutput("elsewhere", said=f"[{of} a file that is not known: {problem}]"))
        elif not path.value or path.unknown:
            found.append(UnitOutput("elsewhere", said=f"[{of} the file {named}, whose name is not understood]"))
        else:
            found.append(UnitOutput(kind, path.value, _said(of, setting, kind, path.value)))
    return found


async def _places(transport: Transport, query: JournalQuery) -> dict[str, str]:
    """What stands for the specifiers that name folders."""
    if query.scope == "system":
        return _SYSTEM_PLACES
    done = await transport.run(["getent", "passwd", str(query.uid)])
    fields = done.stdout.decode("utf-8", "replace").strip().split(":")
    return {"t": f"/run/user/{query.uid}", "h": fields[5], "u": fields[0]} if len(fields) == 7 else {}


def _said(of: str, setting: str, kind: str, path: str) -> str:
    if kind == "file":
        return (
            f"[{of} {path} ({setting}=file:), which each start writes over from its beginning: "
            "which line is of which start is not known, so none is shown here; append: or journal would tell]"
        )
    if kind == "append":
        return (
            f"[{of} {path} ({setting}=append:), which does not say which start a line is of: "
            "that is known of the lines that come while the console looks on]"
        )
    return ""


async def read_tail(transport: Transport, path: str, size: int, limit: int) -> tuple[int, bytes]:
    """The offset of the first of a file's last whole lines, and these lines, at most ``limit`` bytes. Raises: HostFileError."""
    begin = max(0, size - limit)
    data = await transport.read(path, offset=begin, limit=size - begin)
    if begin:
        cut = data.find(b"\n") + 1
        return begin + cut, data[cut:]
    return 0, data
