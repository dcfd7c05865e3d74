"""Commit-confirm: a timer on the host that puts the last confirmed configuration back unless it is called off in time.

It depends on nothing but the host: a POSIX script with the texts inside, run by a transient timer of the same systemd. Whether it
fired or was called off is decided by one rename, which only one of the two can win.
"""

from __future__ import annotations

import base64
import json
import shlex
from dataclasses import dataclass

from ..evidence.file_edits import Texts
from .systemd_audit import audit_path
from .systemd_manager import Manager, said
from .transport import HostError

_ARM = """
set -eu
umask 077
mkdir -p -- "$1"
cat > "$1/$2.sh"
rm -f -- "$1/$2.fired" "$1/$2.off" "$1/$2.done"
: > "$1/$2.armed"
sync -- "$1"
"""
_DISARM = """
if mv -- "$1/$2.armed" "$1/$2.off" 2>/dev/null; then printf 'off\\n'
elif [ -e "$1/$2.fired" ] || [ -e "$1/$2.done" ]; then printf 'fired\\n'
else printf 'none\\n'; fi
"""
_HEAD = """#!/bin/sh
# Written by ddtree-console: puts the last confirmed configuration of {unit} back.
# Runs when the change was not confirmed within {seconds} s. It holds what the configuration holds, keys included.
umask 077
cd {folder} || exit 1
mv -- {name}.armed {name}.fired || exit 0
status=0
put() {{
  if [ -L "$1" ]; then target=$(readlink -f -- "$1"); else target=$1; fi
  mkdir -m 755 -p -- "$(dirname -- "$target")" && new=$(mktemp -- "$(dirname -- "$target")/.ddtree-console.XXXXXX") || return 1
  base64 -d > "$new" || return 1
  if [ -e "$target" ]; then chown --reference="$target" -- "$new"; chmod --reference="$target" -- "$new"
  else chmod "$2" -- "$new"; fi
  sync -- "$new"
  mv -f -- "$new" "$target"
}}
"""
_TAIL = """
{systemctl} daemon-reload || status=1
{systemctl} reset-failed {unit} 2>/dev/null
{systemctl} {verb} {unit} || status=1
mv -- {name}.fired {name}.done
mkdir -p -- "$(dirname -- {audit})"
printf '{{"time": "%s", "who": {who}, "what": "roll-back by the timer", "unit": {json_unit}, "status": %s}}\\n' \\
  "$(date '+%Y-%m-%dT%H:%M:%S%z')" "$status" >> {audit}
exit $status
"""


@dataclass(frozen=True)
class ArmedRollback:
    """A timer that is running."""

    name: str
    """Of the timer and its service on the host, without the suffix."""
    seconds: int


class RollbackTimer:
    """Arms and calls off the timer of one unit."""

    def __init__(self, manager: Manager, unit: str, *, author: str = "") -> None:
        self._manager = manager
        self._unit = unit
        self._author = author
        safe = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in unit.removesuffix(".service"))
        self._name = f"ddtree-rollback-{safe}"

    async def arm(self, seconds: int, restore: Texts, *, restart: bool = True) -> ArmedRollback:
        """Start the timer; an earlier one of this unit is replaced.

        Args:
            seconds: until it fires, by the host's own clock.
            restore: the files as they are to be again; ``None`` removes one.
            restart: whether the engine ran before and is to run again; otherwise it is stopped.

        Raises:
            HostError: no root's rights, no room, or a user's manager that ends when the user logs out.
        """
        if seconds < 1:
            raise HostError("a roll-back timer takes at least a second")
        if not (await self._manager.facts()).elevation.possible:
            why = (await self._manager.facts()).elevation.why_not
            raise HostError(f"a roll-back timer on {self._manager.transport.name} takes root's rights: {why}")
        await self._must_linger()
        systemctl = "systemctl --user" if self._manager.scope == "user" else "systemctl"
        folder = await self._folder()
        verb = "--no-block restart" if restart else "--no-block stop"
        script = await self._script(seconds, restore, folder, systemctl, verb)
        await self._stop_timer()
        done = await self._manager.run_root(
            ["sh", "-c", _ARM, "sh", folder, self._name], stdin=script.encode("utf-8", "replace"), changes=True
        )
        if not done.ok:
            raise HostError(f"the roll-back script cannot be kept on {self._manager.transport.name}: {said(done)}")
        await self._start_timer(seconds, f"{folder}/{self._name}.sh")
        return ArmedRollback(self._name, seconds)

    async def disarm(self) -> bool:
        """Call the timer off. True = it is certain that it will not fire; False = it had fired already (or there was none).

        Raises:
            HostError: the host does not answer, so whether it fires is not known.
        """
        folder = await self._folder()
        done = await self._manager.run_root(["sh", "-c", _DISARM, "sh", folder, self._name], changes=True)
        answer = done.stdout.decode("utf-8", "replace").strip()
        if answer not in ("off", "fired", "none"):
            raise HostError(f"whether the roll-back timer was called off is not known: {said(done)}")
        if answer == "off":
            await self._stop_timer()
            # The texts in it may hold keys, and are of no use any more.
            await self._manager.run_root(["rm", "-f", "--", f"{folder}/{self._name}.sh"], changes=True)
        return answer == "off"

    async def armed(self) -> bool:
        """Whether the timer is running and has not fired."""
        folder = await self._folder()
        done = await self._manager.run_root(["test", "-e", f"{folder}/{self._name}.armed"])
        shown = await self._manager.show(f"{self._name}.timer")
        return done.ok and shown.get("ActiveState") == "active"

    async def fired(self) -> bool:
        """Whether it has put the configuration back, wholly or in part."""
        folder = await self._folder()
        argv = ["sh", "-c", '[ -e "$1.fired" ] || [ -e "$1.done" ]', "sh", f"{folder}/{self._name}"]
        return (await self._manager.run_root(argv)).ok

    async def _script(self, seconds: int, restore: Texts, folder: str, systemctl: str, verb: str) -> str:
        words = {
            "unit": shlex.quote(self._unit),
            "seconds": seconds,
            "folder": shlex.quote(folder),
            "name": shlex.quote(self._name),
            "systemctl": systemctl,
            "verb": verb,
            "audit": shlex.quote(await audit_path(self._manager)),
            "who": _inside_single(json.dumps(self._author or "ddtree-console")),
            "json_unit": _inside_single(json.dumps(self._unit)),
        }
        parts = [_HEAD.format(**words)]
        for path, text in restore.items():
            quoted = shlex.quote(path)
            if text is None:
                parts.append(f"rm -f -- {quoted} || status=1\n")
            else:
                data = base64.encodebytes(text.encode("utf-8", "replace")).decode("ascii")
                parts.append(f"put {quoted} 644 <<'END' || status=1\n{data}END\n")
        return "".join(parts) + _TAIL.format(**words)

    async def _start_timer(self, seconds: int, script: str) -> None:
        scope = ["--user"] if self._manager.scope == "user" else []
        facts = await self._manager.facts()
        argv = ["env", f"XDG_RUNTIME_DIR={facts.runtime}", "systemd-run", *scope, "--no-ask-password", "--collect"]
        argv += [f"--unit={self._name}", f"--on-active={seconds}s", "--timer-property=AccuracySec=100ms"]
        argv += [f"--description=Roll-back of {self._unit} unless confirmed", "/bin/sh", script]
        done = await self._manager.run_root(argv, changes=True)
        if not done.ok:
            raise HostError(f"the roll-back timer cannot be started on {self._manager.transport.name}: {said(done)}")
        shown = await self._manager.show(f"{self._name}.timer")
        if shown.get("ActiveState") != "active":
            raise HostError(f"the roll-back timer does not run on {self._manager.transport.name}: {shown.get('ActiveState')}")

    async def _stop_timer(self) -> None:
        argv = await self._manager.systemctl("stop", "--", f"{self._name}.timer")
        await self._manager.run_root(argv, changes=True)

    async def _must_linger(self) -> None:
        if self._manager.scope == "system":
            return
        facts = await self._manager.facts()
        done = await self._manager.transport.run(["loginctl", "show-user", "--property=Linger", "--value", "--", facts.user])
        if done.stdout.strip() != b"yes":
            raise HostError(
                f"{facts.user}'s own systemd ends when {facts.user} logs out, and a timer with it; allow it to stay: "
                f"loginctl enable-linger {facts.user}"
            )

    async def _folder(self) -> str:
        facts = await self._manager.facts()
        if self._manager.scope == "system":
            return "/var/lib/ddtree-console/rollback"
        return f"{facts.home}/.local/state/ddtree-console/rollback"


def _inside_single(text: str) -> str:
    """Text for the inside of a single-quoted printf format: no quote ends it, no percent sign is a directive."""
    return text.replace("\\", "\\\\").replace("%", "%%").replace("'", "'\\''")
