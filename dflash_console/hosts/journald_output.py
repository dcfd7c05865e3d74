"""Where a unit's standard output goes: the journal, a file, or nowhere that can be read (``StandardOutput=``, systemd.exec(5)).

The manager tells the kind, not the file's path; that is read from the unit's text.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..evidence.unit import UnitSource, read_unit
from ..evidence.unit_specifiers import UnitName, replace_specifiers
from .journald_query import JournalQuery
from .transport import HostFileError, Transport

_FILES = frozenset({"append", "truncate", "file"})
_JOURNAL = frozenset({"journal", "journal+console", "kmsg", "kmsg+console", "syslog", "syslog+console", "inherit", ""})
"""``inherit`` is what the manager's default is taken from; unless configured otherwise, that is the journal."""
_SYSTEM_PLACES = {"t": "/run", "S": "/var/lib", "C": "/var/cache", "L": "/var/log", "E": "/etc", "h": "/root", "u": "root"}


@dataclass(frozen=True)
class UnitOutput:
    """Where the lines are, as the manager has loaded it."""

    kind: str = "journal"
    """``journal``, ``append``, ``truncate``, ``file``, or ``elsewhere``."""
    path: str = ""
    said: str = ""
    """For the log: where the output goes, when it is not the journal, and what follows from that."""


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


async def find_output(transport: Transport, query: JournalQuery) -> UnitOutput:
    """Where the unit's output goes. What cannot be found out counts as the journal, where at least the manager's lines are.

    Raises:
        HostUnreachable
    """
    asked = ("StandardOutput", "FragmentPath", "DropInPaths")
    done = await transport.run([*manager_command(query), "show", f"--property={','.join(asked)}", query.unit])
    shown = dict(line.partition("=")[::2] for line in done.stdout.decode("utf-8", "replace").splitlines())
    kind = shown.get("StandardOutput", "")
    if kind in _JOURNAL:
        return UnitOutput()
    if kind not in _FILES:
        return UnitOutput("elsewhere", said=f"[the output of {query.unit} is not in the journal: StandardOutput={kind}]")
    files = [path for path in (shown.get("FragmentPath", ""), *shown.get("DropInPaths", "").split()) if path]
    try:
        sources = [UnitSource(path, (await transport.read(path)).decode("utf-8", "replace")) for path in files]
    except HostFileError as error:
        return UnitOutput("elsewhere", said=f"[the output of {query.unit} goes to a file that is not known: {error}]")
    named = read_unit(sources).log_file or ""
    values = {**UnitName(query.unit).specifiers(), **(_SYSTEM_PLACES if query.scope == "system" else {})}
    path = replace_specifiers(named, values)
    if not path.value or path.unknown:
        return UnitOutput(
            "elsewhere", said=f"[the output of {query.unit} goes to the file {named}, whose name is not understood]"
        )
    return UnitOutput(kind, path.value, _said(query.unit, kind, path.value))


def _said(unit: str, kind: str, path: str) -> str:
    if kind == "file":
        return (
            f"[the output of {unit} goes to {path} (StandardOutput=file:), which each start writes over from its beginning: "
            "which line is of which start is not known, so none is shown here; append: or journal would tell]"
        )
    if kind == "append":
        return (
            f"[the output of {unit} goes to {path} (StandardOutput=append:), which does not say which start a line is of: "
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
