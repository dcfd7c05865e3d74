"""The journal of one operation on disk, written before each step: a console that dies leaves it, and the next one finds it.

``operations/<id>.jsonl``: a ``begin`` record with everything that a roll-back needs, one record per stage, an ``end``. Texts of
configurations are not in it (they may hold keys): they are kept on the host, beside the configuration.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from ..hosts import proc
from ..hosts.transport import HostError
from ..knobs import Value
from ..paths import Paths, private_folder, sync_folder

JOURNALS_KEPT = 200
"""Journals that are kept; history and the audit file remember longer. One that still waits for a decision always stays."""


class JournalError(HostError):
    """The journal cannot be written: no step may be taken that a crash would leave unknown."""


@dataclass(frozen=True)
class OperationBegin:
    """Written before anything is changed."""

    operation_id: str
    what: str
    """``apply``, ``restart``, ``start``, ``stop`` or ``rollback``."""
    host: str
    unit: str
    mode: str
    at: float
    console_pid: int
    console_ticks: int
    target: str = ""
    paths: Sequence[str] = ()
    """The files that it writes, or, when it writes nothing, those that it was planned with."""
    old_digest: str = ""
    """Of the texts of all of them together, before."""
    new_digest: str = ""
    """The same, as planned."""
    backup: str = ""
    """Where the old texts are kept on the host; empty when the operation writes nothing."""
    planned: str = ""
    """Where the new texts are kept on the host."""
    settings: Mapping[str, Value | None] = field(default_factory=dict)
    hot_before: Mapping[str, float] = field(default_factory=dict)
    """For a hot change: what was in effect, as numbers to post back."""
    old_invocation: str | None = None
    was_running: bool | None = None
    """Whether an engine ran before the restart was asked for; ``None`` = it was not asked for yet."""
    cursor: str = ""
    """End of the log before the newest restart was asked for, be it the operation's or its roll-back's."""
    rolling_back: bool = False
    """The operation has failed, and the configuration of before is being put back."""
    back_from: str | None = None
    """In a roll-back: the invocation before its restart was asked for."""
    undo_after_s: int | None = None
    """With commit-confirm: seconds after which a timer on the host puts the configuration back."""

    @property
    def ran_before(self) -> bool:
        """Whether going back means that an engine runs again."""
        return self.old_invocation is not None if self.was_running is None else self.was_running


@dataclass(frozen=True)
class PendingOperation:
    """An operation whose console went away before it ended."""

    begin: OperationBegin
    stages: tuple[str, ...]
    """Names of the stages that were done."""
    running: str
    """The stage that was under way."""
    path: Path

    @property
    def operation_id(self) -> str:
        return self.begin.operation_id

    @property
    def written(self) -> bool:
        """The configuration may have been written."""
        return bool(self.begin.backup) and ("write" in self.stages or self.running == "write")

    @property
    def restart_asked(self) -> bool:
        """Its restart may have been asked for: another start that is seen may be its own."""
        return "restart" in self.stages or self.running == "restart"

    @property
    def words(self) -> str:
        """One sentence for the screen."""
        when = time.strftime("%H:%M:%S", time.localtime(self.begin.at))
        place = (
            f"during '{self.running}'"
            if self.running
            else f"after '{self.stages[-1]}'"
            if self.stages
            else "before it did anything"
        )
        return f"{self.begin.what} on {self.begin.host}/{self.begin.unit}, begun at {when}, was cut off {place}"


class OperationJournal:
    """Appends records, each on disk before the call returns."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def path(self) -> Path:
        return self._path

    def begin(self, begin: OperationBegin) -> None:
        """Raises: JournalError: nothing may be changed then."""
        folder = self._path.parent
        try:
            private_folder(folder)
            self._append("begin", asdict(begin))
            sync_folder(folder)
        except OSError as error:
            raise self._unwritable(error) from None
        with contextlib.suppress(OSError):
            for old in sorted(folder.glob("*.jsonl"))[:-JOURNALS_KEPT]:
                if read_pending(old) is None:
                    old.unlink(missing_ok=True)

    def note(self, **values: object) -> None:
        """Facts that became known after the beginning; later ones win. Raises: JournalError."""
        try:
            self._append("note", values)
        except OSError as error:
            raise self._unwritable(error) from None

    def abandon(self) -> None:
        """This console leaves the operation as it is: it is to be resumed or rolled back, also while the console lives."""
        with contextlib.suppress(OSError):
            self._append("note", {"abandoned": True})

    def stage(self, name: str, status: str, evidence: str = "") -> None:
        # A full disk must not stop an operation half-way: what follows is safer than an abandoned restart.
        with contextlib.suppress(OSError):
            self._append("stage", {"name": name, "status": status, "evidence": evidence})

    def end(self, verdict: str, reason: str) -> None:
        with contextlib.suppress(OSError):
            self._append("end", {"verdict": verdict, "reason": reason})

    def _unwritable(self, error: OSError) -> JournalError:
        return JournalError(f"the operation's journal {self._path} cannot be written: {error.strerror or error}")

    def _append(self, kind: str, values: Mapping[str, object]) -> None:
        record = {"kind": kind, "time": round(time.time(), 3), **values}
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(handle).st_size
            # After a crash in the middle of a line, the next record must not become part of it.
            cut = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
            text = (b"\n" if cut else b"") + json.dumps(record, ensure_ascii=False).encode() + b"\n"
            while text:
                # A disk that gets full takes a part and says so only to who asks again (write(2)).
                text = text[os.write(handle, text) :]
            os.fsync(handle)
        finally:
            os.close(handle)


def new_operation_id() -> str:
    """Sorts by time; unique on this machine."""
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(3)


def own_identity() -> tuple[int, int]:
    """Pid and start ticks of this console."""
    own = proc.identify(os.getpid())
    return (own.pid, own.ticks) if own is not None else (os.getpid(), 0)


def pending_operations(paths: Paths, host: str | None = None, unit: str | None = None) -> tuple[PendingOperation, ...]:
    """Operations without an end whose console is gone or gave them up, oldest first."""
    found = []
    for path in sorted(paths.operations.glob("*.jsonl")) if paths.operations.is_dir() else []:
        pending = read_pending(path)
        if (
            pending is None
            or (host is not None and pending.begin.host != host)
            or (unit is not None and pending.begin.unit != unit)
        ):
            continue
        found.append(pending)
    return tuple(found)


def read_pending(path: Path) -> PendingOperation | None:
    """The operation of one journal, when it was cut off; ``None`` when it ended, still runs, or cannot be read."""
    begin: OperationBegin | None = None
    notes: dict[str, object] = {}
    stages: list[str] = []
    running = ""
    abandoned = False
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return None
    for line in lines:
        try:
            record = json.loads(line)
            kind = record["kind"]
        except (ValueError, KeyError, TypeError):
            # The last line may be cut: the crash came while it was written, so its step had not begun.
            continue
        if kind == "begin":
            begin = _begin(record)
        elif kind == "note":
            notes.update(record)
            abandoned = bool(record.get("abandoned", abandoned))
        elif kind == "end":
            return None
        elif record.get("status") == "running":
            running = str(record.get("name", ""))
        else:
            running = ""
            if record.get("status") == "done":
                stages.append(str(record.get("name", "")))
    if begin is None:
        return None
    begin = _begin({**asdict(begin), **notes}) or begin
    if not abandoned and proc.alive(proc.ProcessId(begin.console_pid, begin.console_ticks)):
        return None
    return PendingOperation(begin, tuple(stages), running, path)


def _begin(record: Mapping[str, object]) -> OperationBegin | None:
    known = {item.name for item in fields(OperationBegin)}
    try:
        return OperationBegin(**{name: value for name, value in record.items() if name in known})  # type: ignore[arg-type]
    except TypeError:
        return None
