"""Commit-confirm: a timer on the host that puts the last confirmed configuration back unless it is called off in time.

It depends on nothing but the host, and outlives a reboot of it (see ``systemd_rollback_script.py``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ..evidence.file_edits import Texts
from .systemd_audit import audit_path
from .systemd_manager import Manager, said
from .systemd_rollback_script import ARM, DISARM, FORGET, script_text, unit_texts
from .transport import HostError, HostUnreachable


@dataclass(frozen=True)
class ArmedRollback:
    """A timer that is running."""

    name: str
    """Of the timer and its service on the host, without the suffix."""
    seconds: int


class RollbackTimer:
    """Arms and calls off the timer of one unit."""

    def __init__(
        self, manager: Manager, unit: str, *, author: str = "", may_change: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """``may_change``: raises HostError when the unit is no longer this console's to change."""
        self._may_change = may_change
        self._manager = manager
        self._unit = unit
        self._author = author
        safe = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in unit.removesuffix(".service"))
        self._name = f"ddtree-rollback-{safe}"

    async def arm(self, seconds: int, restore: Texts, *, restart: bool = True) -> ArmedRollback:
        """Start the timer; an earlier one of this unit is replaced.

        Args:
            seconds: until it fires, by the host's own clock; after a reboot they are counted from its start.
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
        await self._still_ours()
        folder, units = await self._folder(), await self._units()
        script = script_text(
            restore,
            unit=self._unit,
            name=self._name,
            folder=folder,
            units=units,
            seconds=seconds,
            systemctl="systemctl --user" if self._manager.scope == "user" else "systemctl",
            restart=restart,
            audit=await audit_path(self._manager),
            author=self._author or "ddtree-console",
        )
        await self._stop_timer()
        texts = unit_texts(self._unit, f"{folder}/{self._name}.sh", seconds)
        done = await self._manager.run_root(
            ["sh", "-c", ARM, "sh", folder, self._name, units, *texts], stdin=script.encode("utf-8", "replace"), changes=True
        )
        if not done.ok:
            raise HostError(f"the roll-back script cannot be kept on {self._manager.transport.name}: {said(done)}")
        await self._start_timer()
        return ArmedRollback(self._name, seconds)

    async def disarm(self) -> bool:
        """Call the timer off. True = it is certain that it will not fire; False = it had fired already (or there was none).

        Raises:
            HostError: the host does not answer, so whether it fires is not known.
        """
        await self._still_ours()
        done = await self._manager.run_root(["sh", "-c", DISARM, "sh", await self._folder(), self._name], changes=True)
        answer = done.stdout.decode("utf-8", "replace").strip()
        if answer == "stuck":
            return await self._remove_armed(said(done))
        if answer not in ("off", "fired", "none"):
            raise HostError(f"whether the roll-back timer was called off is not known: {said(done)}")
        if answer == "off":
            # It does nothing any more, whatever becomes of these.
            with contextlib.suppress(HostError):
                await self._forget()
        return answer == "off"

    async def _remove_armed(self, why: str) -> bool:
        """The rename that calls it off is not possible: it does not fire either when it is stopped and its files are gone."""
        problem = why
        try:
            await self._forget()
            units = [await self._manager.show(f"{self._name}.{kind}") for kind in ("timer", "service")]
            if all(shown.get("ActiveState") in ("inactive", "failed") for shown in units):
                return not await self.fired()
        except HostUnreachable:
            raise
        except HostError as error:
            problem = f"{why}; {error}"
        raise HostError(
            f"the roll-back timer on {self._manager.transport.name} could not be called off ({problem}): it puts the "
            f"configuration of before back, unless systemctl stop {self._name}.timer works there"
        )

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

    async def _still_ours(self) -> None:
        if self._may_change is not None:
            await self._may_change()

    async def _start_timer(self) -> None:
        try:
            await self._manager.command("daemon-reload")
            await self._manager.command("start", "--", f"{self._name}.timer")
        except HostError as error:
            raise HostError(f"the roll-back timer cannot be started on {self._manager.transport.name}: {error}") from None
        shown = await self._manager.show(f"{self._name}.timer")
        if shown.get("ActiveState") != "active":
            raise HostError(f"the roll-back timer does not run on {self._manager.transport.name}: {shown.get('ActiveState')}")

    async def _stop_timer(self) -> None:
        argv = await self._manager.systemctl("stop", "--", f"{self._name}.timer")
        await self._manager.run_root(argv, changes=True)

    async def _forget(self) -> None:
        """Remove a timer that was called off."""
        await self._stop_timer()
        argv = ["sh", "-c", FORGET, "sh", await self._folder(), self._name, await self._units()]
        done = await self._manager.run_root(argv, changes=True)
        if not done.ok:
            raise HostError(f"its files cannot be removed: {said(done)}")
        await self._manager.command("daemon-reload")

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

    async def _units(self) -> str:
        if self._manager.scope == "system":
            return "/etc/systemd/system"
        return f"{(await self._manager.facts()).config_home}/systemd/user"
