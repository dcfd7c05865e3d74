"""How ``journalctl`` is asked for one unit's lines, of all starts or of one.

Two facts decide the form. ``--after-cursor`` skips the first *matching* entry after the cursor and not the cursor's own, so with
matches it loses a line (seen on systemd 252); ``--cursor`` with the entry left out by the reader does not. And ``-u`` cannot be
joined with an invocation id by *or*, so the matches that it stands for are written out (``add_matches_for_unit`` in systemd).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..evidence.journal import FIELDS, STARTED

Scope = Literal["system", "user"]

_COREDUMP = "fc2e22bc6ee647b6b90729ab34a250b1"


@dataclass(frozen=True)
class JournalQuery:
    """Which lines of a host's journal are a unit's."""

    unit: str
    scope: Scope = "system"
    uid: int = 0
    """The user whose unit it is, for scope ``user``."""

    def matches(self, invocation_id: str | None = None, *, restarts: bool = True) -> tuple[str, ...]:
        """Match arguments: the unit's own output, what the service manager and journald say of it.

        Args:
            invocation_id: of this start only.
            restarts: journald's own starts too.
        """
        alternatives = self._of_start(invocation_id) if invocation_id is not None else self._of_unit()
        if restarts:
            alternatives.append((f"MESSAGE_ID={STARTED}", "_TRANSPORT=driver"))
        joined: list[str] = []
        for alternative in alternatives:
            joined += ["+", *alternative] if joined else alternative
        return tuple(joined)

    def _of_start(self, invocation_id: str) -> list[tuple[str, ...]]:
        # The manager's own lines ("Main process exited") name the start in a field of their own, journald's in another.
        said = "INVOCATION_ID" if self.scope == "system" else "USER_INVOCATION_ID"
        names = ("_SYSTEMD_INVOCATION_ID", said, "OBJECT_SYSTEMD_INVOCATION_ID")
        return [(f"{name}={invocation_id}",) for name in names]

    def _of_unit(self) -> list[tuple[str, ...]]:
        if self.scope == "system":
            return [
                (f"_SYSTEMD_UNIT={self.unit}",),
                (f"UNIT={self.unit}", "_PID=1"),
                (f"OBJECT_SYSTEMD_UNIT={self.unit}", "_UID=0"),
                (f"COREDUMP_UNIT={self.unit}", f"MESSAGE_ID={_COREDUMP}", "_UID=0"),
            ]
        return [
            (f"_SYSTEMD_USER_UNIT={self.unit}", f"_UID={self.uid}"),
            (f"USER_UNIT={self.unit}", f"_UID={self.uid}"),
            (f"OBJECT_SYSTEMD_USER_UNIT={self.unit}", "_UID=0"),
            (f"COREDUMP_USER_UNIT={self.unit}", f"MESSAGE_ID={_COREDUMP}", "_UID=0"),
        ]


def journalctl(
    *matches: str, cursor: str = "", newest: int | None = None, follow: bool = False, namespace: str = ""
) -> tuple[str, ...]:
    """The command: JSON, fields of any length and binary ones included, oldest first.

    Args:
        cursor: begin with the entry there, or the next one where it is gone or is not selected.
        newest: with a cursor the first so many entries, without one the last so many.
        follow: go on with new entries for ever.
        namespace: a journal to be read beside the host's own (``LogNamespace=``).
    """
    words = ["journalctl", "--output=json", "--all", "--no-pager", f"--output-fields={','.join(FIELDS)}"]
    if namespace:
        words.append(f"--namespace=+{namespace}")
    if cursor:
        words.append(f"--cursor={cursor}")
    if newest is not None:
        words.append(f"--lines={newest}")
    if follow:
        words += ["--follow", "--no-tail"]
    return (*words, *matches)
