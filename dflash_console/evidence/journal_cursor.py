"""Where a reader stands in a log: cursors of journald, places in a log file, and how they are written down.

A cursor of journald is ``s=…;i=…;b=…;m=…;t=…;x=…``: the sequence it belongs to and the number in it, boot, monotonic and real
time in microseconds, a hash of the entry; numbers in hexadecimal (journal export formats, ``sd_journal_get_cursor(3)``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

_AT = "@"
_FILE = ";file="
_HEX_DIGITS = frozenset("0123456789abcdef")


@dataclass(frozen=True)
class JournalCursor:
    """One entry's place in a journal."""

    sequence: str
    number: int
    boot: str
    monotonic: int
    """Microseconds since the boot."""
    realtime: int
    """Microseconds since the epoch, by the host's clock."""
    digest: str
    """Hash of the entry's contents."""

    def same(self, other: JournalCursor) -> bool:
        """Whether both are of the same entry. An entry that is copied into another file changes its sequence, not the rest."""
        if self.sequence == other.sequence:
            return self.number == other.number
        mine = (self.boot, self.monotonic, self.realtime, self.digest)
        return mine == (other.boot, other.monotonic, other.realtime, other.digest)

    def before(self, other: JournalCursor) -> bool:
        """Whether this entry was written before the other: by number, else by the time since the same boot, else by the clock."""
        if self.sequence == other.sequence:
            return self.number < other.number
        if self.boot == other.boot:
            return self.monotonic < other.monotonic
        return self.realtime < other.realtime


def parse_cursor(text: str) -> JournalCursor | None:
    """A cursor of journald; ``None`` when it is not one."""
    fields = dict(pair.partition("=")[::2] for pair in text.split(";"))
    number, monotonic, realtime = (_hex(fields.get(name, "")) for name in "imt")
    if number is None or monotonic is None or realtime is None or not fields.get("s") or not fields.get("b"):
        return None
    return JournalCursor(fields["s"], number, fields["b"], monotonic, realtime, fields.get("x", ""))


def _hex(text: str) -> int | None:
    return int(text, 16) if 0 < len(text) <= 16 and set(text) <= _HEX_DIGITS else None


@dataclass(frozen=True)
class FilePlace:
    """A place in a log file: a file that was replaced has another inode."""

    inode: int
    offset: int


@dataclass(frozen=True)
class LogPlace:
    """A place in a unit's log: in the journal and, where its output goes to files, in those."""

    journal: str = ""
    """The cursor as journald wrote it; empty = before the oldest entry."""
    files: tuple[FilePlace, ...] = ()
    """In each of the files, in the order in which the unit names them."""
    at_entry: bool = False
    """The entry at the cursor is still to be given; otherwise the one after it is next."""

    def __str__(self) -> str:
        """As text that :func:`parse_place` reads: what callers keep as *the cursor*."""
        return (_AT if self.at_entry else "") + self.journal + "".join(f"{_FILE}{f.inode}:{f.offset}" for f in self.files)

    def after(self, journal: str) -> LogPlace:
        """The same place with another journal cursor, past that entry."""
        return replace(self, journal=journal, at_entry=False)

    def with_file(self, number: int, place: FilePlace) -> LogPlace:
        """The same place with another one in a file; places in files before it that are not known are beginnings."""
        files = [*self.files, *[FilePlace(0, 0)] * (number + 1 - len(self.files))]
        files[number] = place
        return replace(self, files=tuple(files))


def parse_place(text: str | None) -> LogPlace:
    """The place that a cursor names; ``None`` and an empty text are the beginning.

    Raises:
        ValueError: it is no cursor.
    """
    journal, *files = (text or "").split(_FILE)
    at_entry = journal.startswith(_AT)
    journal = journal.removeprefix(_AT)
    if journal and parse_cursor(journal) is None:
        raise ValueError(f"'{text}' is no cursor of a journal")
    found = []
    for where in files:
        inode, _, offset = where.partition(":")
        if not (inode.isascii() and inode.isdigit() and offset.isascii() and offset.isdigit()):
            raise ValueError(f"'{text}' is no cursor of a log")
        found.append(FilePlace(int(inode), int(offset)))
    return LogPlace(journal, tuple(found), at_entry)
