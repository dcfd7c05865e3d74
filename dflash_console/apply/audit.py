"""One line per operation: when, who, what, on what, how it ended, why."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

from ..paths import private_folder
from .records import ApplyResult


def who() -> str:
    """The user at this machine, for locks and the audit file."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def audit_record(*, what: str, service: str, result: ApplyResult, settings: str, why: str) -> dict[str, object]:
    """The line of a finished operation: who, what, on what, how it ended, why. Secrets must have been masked before."""
    return {
        "who": who(),
        "what": what,
        "service": service,
        "settings": settings,
        "mode": result.mode.value,
        "verdict": result.verdict.value,
        "invocation_id": result.invocation_id,
        "rolled_back": result.rolled_back,
        "reason": result.reason,
        "why": why,
        "operation": result.operation_id,
    }


def append_audit(path: Path, record: Mapping[str, object]) -> None:
    """Append a line with the time by this machine's clock. A disk that is full loses the line, not the operation."""
    line = {"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), **record}
    with contextlib.suppress(OSError):
        private_folder(path.parent)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, json.dumps(line, ensure_ascii=False).encode() + b"\n")
        finally:
            os.close(handle)


def audit_lines(path: Path, limit: int = 100) -> tuple[str, ...]:
    """The newest lines, oldest first."""
    try:
        return tuple(path.read_text("utf-8", "replace").splitlines()[-limit:])
    except OSError:
        return ()
