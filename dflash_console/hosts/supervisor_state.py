"""What the supervisor writes down about the engine (``state.json``): the record, its text form, its atomic replacement.

Standard library only; the console reads the same record through a transport.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from .proc import ProcessId

STATE_NAME = "state.json"
UNIT_NAME = "service.toml"
RUNNING_LOCK = "supervisor.lock"
"""Held by the supervisor for as long as it lives: there is one per folder."""
ANOTHER_PORT = "--another-port"
"""Word for a start that may take another port than the unit's own (:mod:`.chosen_port`)."""
RESTART_LOCK = "restart.lock"
"""Held by a restart for as long as it waits for the end of the engine that runs."""


@dataclass(frozen=True)
class SupervisorState:
    """The newest start of the unit. Times are seconds since the epoch."""

    state: str
    """``starting``, ``running``, ``stopping``, ``stopped`` or ``failed``."""
    invocation_id: str
    supervisor: ProcessId
    main: ProcessId | None
    boot_id: str
    command: tuple[str, ...]
    """What this start was given: the configuration as loaded."""
    started_at: float
    ended_at: float | None = None
    exit_status: int | None = None
    exit_signal: int | None = None
    result: str = ""
    """systemd's words: ``success``, ``exit-code``, ``signal``, ``resources``, ``start-limit-hit``."""
    restarts: int = 0
    detail: str = ""
    log_cursor: str = ""
    """Where the log of this start begins."""


def dump_state(state: SupervisorState) -> str:
    return json.dumps(asdict(state), indent=1, ensure_ascii=False) + "\n"


def load_state(data: bytes) -> SupervisorState | None:
    """``None`` when ``data`` is not a state (a cut file, another version)."""
    try:
        fields = json.loads(data)
        for name in ("supervisor", "main"):
            fields[name] = ProcessId(**fields[name]) if fields[name] is not None else None
        fields["command"] = tuple(fields["command"])
        return SupervisorState(**fields)
    except (ValueError, TypeError, KeyError):
        return None


def read_state(folder: Path) -> SupervisorState | None:
    try:
        return load_state((folder / STATE_NAME).read_bytes())
    except OSError:
        return None


def write_state(folder: Path, state: SupervisorState) -> bool:
    """Replace the file whole. False when it cannot be written now (a full disk)."""
    temporary = folder / (STATE_NAME + ".new")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            data = dump_state(state).encode("utf-8", "replace")
            if os.write(handle, data) < len(data):
                return False
        finally:
            os.close(handle)
        os.replace(temporary, folder / STATE_NAME)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        return False
    return True
