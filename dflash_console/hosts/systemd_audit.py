"""What was done to a host's units, noted on that host: who, when, what, why, how it ended. One JSON object a line.

``/var/log/ddtree-console/audit.jsonl`` for the system's units, ``~/.local/state/ddtree-console/audit.jsonl`` for a user's own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from .systemd_manager import Manager, said
from .transport import HostFileError

# One write(2) to a file that was opened for appending is not torn apart by another one; the time is the host's.
_APPEND = """
set -eu
umask 077
mkdir -p -- "$(dirname -- "$1")"
line=$(cat)
printf '{"time": "%s", %s\\n' "$(date '+%Y-%m-%dT%H:%M:%S%z')" "${line#\\{}" >> "$1"
"""


async def audit_path(manager: Manager) -> str:
    if manager.scope == "system" and (await manager.facts()).elevation.possible:
        return "/var/log/ddtree-console/audit.jsonl"
    return f"{(await manager.facts()).home}/.local/state/ddtree-console/audit.jsonl"


async def append_audit_line(manager: Manager, record: Mapping[str, object]) -> str:
    """Append one line; its file. ``time`` is added by the host. Secrets must have been masked before.

    Raises:
        HostFileError: it cannot be written.
    """
    path = await audit_path(manager)
    line = json.dumps(dict(record), ensure_ascii=False)
    if line == "{}":
        raise ValueError("an empty line says nothing")
    done = await manager.run_root(["sh", "-c", _APPEND, "sh", path], stdin=line.encode("utf-8", "replace"), changes=True)
    if not done.ok:
        raise HostFileError(path, f"cannot append to {path}: {said(done)}", full="No space" in said(done))
    return path
