"""Texts of configuration files by path: what a change writes, and how sets of them are compared and kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Texts = Mapping[str, str | None]
"""Path → text; ``None`` = there is no such file."""


@dataclass(frozen=True)
class FileEdit:
    """One file that a change writes. Texts may hold keys and so never take part in ``repr``."""

    path: str
    old: str | None = field(repr=False)
    """``None`` = the file must not exist."""
    new: str | None = field(repr=False)
    """``None`` = the file is removed."""
    mode: int | None = None
    """Permission bits of a file that is not there yet; ``None`` = as the service thinks best. One that is there keeps its own."""

    @property
    def lossy(self) -> bool:
        """Whether the old text had bytes that are no UTF-8: written again, it would be another."""
        return "\ufffd" in (self.old or "")

    @property
    def reverse(self) -> FileEdit:
        return FileEdit(self.path, self.new, self.old)


def reverse_edits(edits: Iterable[FileEdit]) -> tuple[FileEdit, ...]:
    """The edits that undo ``edits``, the last first."""
    return tuple(edit.reverse for edit in edits)[::-1]


def edits_between(now: Texts, wanted: Texts) -> tuple[FileEdit, ...]:
    """The edits that make the texts of ``wanted`` out of those of ``now``; files that only ``now`` has stay."""
    return tuple(FileEdit(path, now.get(path), text) for path, text in wanted.items() if now.get(path) != text)


def old_texts(edits: Iterable[FileEdit]) -> Texts:
    return {edit.path: edit.old for edit in edits}


def new_texts(edits: Iterable[FileEdit]) -> Texts:
    return {edit.path: edit.new for edit in edits}


def texts_digest(texts: Texts) -> str:
    """SHA-256 over paths and texts, whatever their order."""
    return digests_digest({path: None if text is None else text_digest(text) for path, text in texts.items()})


def digests_digest(digests: Mapping[str, str | None]) -> str:
    """:func:`texts_digest` from the digest of each text."""
    return hashlib.sha256(json.dumps(dict(sorted(digests.items()))).encode()).hexdigest()


def text_digest(text: str) -> str:
    """SHA-256 of a text in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()


def dump_texts(texts: Texts) -> str:
    return json.dumps(dict(sorted(texts.items())), ensure_ascii=False, indent=1)


def load_texts(data: str) -> Texts:
    """Raises: ValueError: it is no kept set of texts."""
    found = json.loads(data)
    if not isinstance(found, dict) or not all(text is None or isinstance(text, str) for text in found.values()):
        raise ValueError("not a set of texts")
    return found
