"""Configurations that were confirmed, kept on the host beside the configuration: what a roll-back goes back to."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..evidence.file_edits import FileEdit, Texts, dump_texts, load_texts, new_texts, old_texts, texts_digest
from ..hosts.service import Service
from ..hosts.transport import HostError, HostFileError, HostUnreachable, Transport

KEPT = 10
"""Confirmed configurations that are kept; older ones are removed."""

TEXTS_KEPT = 40
"""Texts of operations that are kept, two for each."""


@dataclass(frozen=True)
class ConfirmedConfig:
    """One configuration that was proven in effect."""

    name: str
    """Sorts by time."""
    digest: str
    at: float
    """By the host's clock."""
    invocation_id: str
    evidence: tuple[str, ...]
    """What proved it, setting by setting."""
    text_path: str
    unit_path: str = ""
    """Where the unit's own file is kept, which only a roll-back writes that finds it spoilt."""
    modes: Mapping[str, int] = field(default_factory=dict)
    """Permission bits of its files."""


class ConfirmedStore:
    """Reads and writes the records of one service, whose configuration has been read: the folder depends on whose it is."""

    def __init__(self, transport: Transport, service: Service) -> None:
        self._transport = transport
        self._service = service

    def path(self, name: str) -> str:
        """Where a text is kept."""
        return f"{self._service.keep}/{name}"

    async def names(self) -> tuple[str, ...]:
        """Everything that is kept. Raises: HostError."""
        return await self._transport.listdir(self._service.keep)

    async def keep_texts(self, name: str, texts: Texts) -> str:
        """Keep texts of configuration files in one file; its path. Raises: HostFileError."""
        await self._transport.make_folder(self._service.keep)
        await self._transport.write(self.path(name), dump_texts(texts).encode(), mode=0o600)
        await self._forget_old()
        return self.path(name)

    async def add_present(self, *, invocation_id: str, evidence: Sequence[str]) -> None:
        """Keep the configuration as it is, just confirmed. The confirmation stands even when there is no room to keep it: the
        next roll-back then goes to an older one."""
        with contextlib.suppress(HostError):
            texts = self._service.restorable(await self._service.configuration())
            await self.add(texts, await self._service.ours(), invocation_id=invocation_id, evidence=evidence)

    async def keep_edits(self, operation_id: str, edits: Sequence[FileEdit]) -> tuple[str, str]:
        """Keep what an operation is about to replace, and what it writes; the two paths. A file that is no text is kept as its
        bytes too. Raises: HostFileError."""
        for number, edit in enumerate(edits):
            if edit.lossy:
                data = await self._service.read(edit.path)
                await self._transport.make_folder(self._service.keep)
                await self._transport.write(self.path(f"{operation_id}.{number}.bytes"), data, mode=0o600)
        before = await self.keep_texts(f"{operation_id}.before", old_texts(edits))
        return before, await self.keep_texts(f"{operation_id}.planned", new_texts(edits))

    async def _forget_old(self) -> None:
        """Bound the texts that operations left; their names begin with the time."""
        names = [name for name in await self.names() if name.endswith((".before", ".planned", ".bytes"))]
        for name in names[:-TEXTS_KEPT]:
            await self._transport.remove(self.path(name))

    async def read_texts(self, path: str) -> Texts:
        """Raises: HostError: there is no such file, or it is damaged."""
        try:
            return load_texts((await self._transport.read(path)).decode("utf-8", "replace"))
        except ValueError:
            raise HostError(f"{path} is damaged: it holds no texts of a configuration") from None

    async def add(
        self, texts: Texts, ours: Texts | None = None, *, invocation_id: str, evidence: Sequence[str]
    ) -> ConfirmedConfig:
        """Keep a configuration that has just been confirmed.

        Args:
            texts: what a roll-back writes.
            ours: :meth:`Service.ours`, what one may write that finds them spoilt.

        Raises:
            HostFileError: it cannot be kept (a full disk); the confirmation itself stands.
        """
        now = await self._transport.now()
        name = f"confirmed-{int(now * 1000):015d}"
        path = await self.keep_texts(f"{name}.texts", texts)
        # Bytes that are no UTF-8 could not be written again as they were.
        whole = {each: text for each, text in (ours or {}).items() if text is not None and "\ufffd" not in text}
        modes = dict(zip(whole, await asyncio.gather(*(self._mode(each) for each in whole)), strict=True))
        unit = {each: text for each, text in whole.items() if each not in texts}
        unit_path = await self.keep_texts(f"{name}.unit", unit) if unit else ""
        known = {each: mode for each, mode in modes.items() if mode is not None}
        record = ConfirmedConfig(name, texts_digest(texts), now, invocation_id, tuple(evidence), path, unit_path, known)
        data = {
            "digest": record.digest,
            "at": now,
            "invocation_id": invocation_id,
            "evidence": list(evidence),
            "unit": bool(unit),
            "modes": known,
        }
        await self._transport.write(self.path(f"{name}.json"), json.dumps(data, ensure_ascii=False).encode(), mode=0o600)
        for old in (await self.records())[KEPT:]:
            await self._transport.remove(self.path(f"{old.name}.json"))
            for path in filter(None, (old.text_path, old.unit_path)):
                await self._transport.remove(path)
        return record

    async def _mode(self, path: str) -> int | None:
        try:
            return (await self._transport.stat(path)).mode & 0o777
        except HostFileError:
            return None

    async def records(self) -> tuple[ConfirmedConfig, ...]:
        """All that can be read, newest first. Raises: HostError."""
        names = [name for name in await self.names() if name.startswith("confirmed-") and name.endswith(".json")]
        found = await asyncio.gather(*(self._record(name.removesuffix(".json")) for name in names))
        return tuple(sorted(filter(None, found), key=lambda record: record.name, reverse=True))

    async def _record(self, name: str) -> ConfirmedConfig | None:
        try:
            data = json.loads(await self._transport.read(self.path(f"{name}.json")))
            return ConfirmedConfig(
                name,
                str(data["digest"]),
                float(data["at"]),
                str(data["invocation_id"]),
                tuple(str(line) for line in data["evidence"]),
                self.path(f"{name}.texts"),
                self.path(f"{name}.unit") if data.get("unit") else "",
                {str(path): int(mode) for path, mode in data.get("modes", {}).items()},
            )
        except HostUnreachable:
            raise
        except (HostError, ValueError, KeyError, TypeError, AttributeError):
            return None
