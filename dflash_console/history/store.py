"""The history's database: SQLite in one worker thread of its own.

Writes return at once and are done in order; reads are awaited. A broken or full disk never stops the console: what could not be
written is counted and said once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TypeVar

from .records import Baseline, Mark, MarkKind, OperationRow, RequestRow, Sample

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], object]

SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS samples (
  service TEXT NOT NULL, at REAL NOT NULL, span REAL NOT NULL, decode REAL, commit_length REAL, running REAL, queued REAL,
  kv REAL, PRIMARY KEY (service, at, span)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS marks (service TEXT NOT NULL, at REAL NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL,
  UNIQUE (service, at, kind, text));
CREATE TABLE IF NOT EXISTS requests (
  service TEXT NOT NULL, at REAL NOT NULL, ttft REAL, decode REAL, commit_length REAL, completion INTEGER, prompt INTEGER,
  error TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS operations (
  service TEXT NOT NULL, at REAL NOT NULL, id TEXT NOT NULL PRIMARY KEY, what TEXT NOT NULL, verdict TEXT NOT NULL,
  reason TEXT NOT NULL, seconds REAL NOT NULL, stages TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS baselines (
  service TEXT NOT NULL PRIMARY KEY, at REAL NOT NULL, decode REAL NOT NULL, note TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS marks_at ON marks (service, at);
CREATE INDEX IF NOT EXISTS operations_at ON operations (service, at);
"""
_MEANS = "AVG(decode), AVG(commit_length), AVG(running), AVG(queued), AVG(kv)"
COARSE = ((3600.0, 10.0), (86_400.0, 60.0))
"""Samples older than the first figure are thinned to one per the second figure, both in seconds."""
_THIN_EVERY_S = 300.0
_REQUESTS_KEPT = 20_000
_KINDS = {kind.value: kind for kind in MarkKind}


@dataclass(frozen=True)
class _Job:
    """Something that the thread does with the database."""

    work: Callable[[sqlite3.Connection], Callable[[], None]]
    """Answers with what is to be done when the work is stored."""
    give_up: Callable[[], None]
    """Called after a ``work`` that failed, or instead of it."""


def open_history(path: Path, *, keep_days: float = 7.0) -> History:
    """Open or create the database. A file that is no database is set aside under another name, never deleted."""
    return History(path, keep_days=keep_days)


class History:
    """All methods may be called from the event loop; nothing blocks it, and nothing raises: where the database cannot be used,
    :attr:`problem` says why and answers are empty."""

    def __init__(self, path: Path, *, keep_days: float = 7.0) -> None:
        self._path = path
        self._keep_s = keep_days * 86_400
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._closed = False
        self._problem: str | None = None
        self._thinned: dict[str, float] = {}
        self._thread = threading.Thread(target=self._serve, name="history", daemon=True)
        self._thread.start()

    @property
    def problem(self) -> str | None:
        """Why history is not being kept, in one sentence; ``None`` while all is well."""
        return self._problem

    def add_sample(self, service: str, sample: Sample) -> None:
        """``service`` is ``host/unit``."""

        def write(db: sqlite3.Connection) -> None:
            row = (
                service,
                sample.at,
                0.0,
                sample.decode_tok_s,
                sample.commit_length,
                sample.running,
                sample.queued,
                sample.kv_usage,
            )
            db.execute("INSERT OR REPLACE INTO samples VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
            if sample.at - self._thinned.get(service, 0.0) > _THIN_EVERY_S:
                self._thinned[service] = sample.at
                thin(db, service, sample.at, self._keep_s)

        self._post(write)

    def add_mark(self, service: str, mark: Mark) -> None:
        row = (service, mark.at, mark.kind.value, mark.text)
        self._post(lambda db: db.execute("INSERT OR IGNORE INTO marks VALUES (?, ?, ?, ?)", row))

    def add_request(self, service: str, row: RequestRow) -> None:
        values = (
            service, row.at, row.ttft_s, row.decode_tok_s, row.commit_length, row.completion_tokens, row.prompt_tokens, row.error,
        )  # fmt: skip
        self._post(lambda db: db.execute("INSERT INTO requests VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values))

    def add_operation(self, service: str, row: OperationRow) -> None:
        stages = json.dumps(dict(row.stages))
        values = (service, row.at, row.operation_id, row.what, row.verdict, row.reason, row.seconds, stages)
        self._post(lambda db: db.execute("INSERT OR REPLACE INTO operations VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values))

    def set_baseline(self, service: str, baseline: Baseline) -> None:
        values = (service, baseline.at, baseline.decode_tok_s, baseline.note)
        self._post(lambda db: db.execute("INSERT OR REPLACE INTO baselines VALUES (?, ?, ?, ?)", values))

    async def samples(self, service: str, since: float, until: float, points: int = 600) -> tuple[Sample, ...]:
        """At most about ``points`` samples of the span, oldest first, each the mean of its share of the span."""
        step = max((until - since) / max(points, 1), 1e-3)

        def read(db: sqlite3.Connection) -> tuple[Sample, ...]:
            rows = db.execute(
                f"SELECT AVG(at), {_MEANS} FROM samples WHERE service = ? AND at >= ? AND at <= ? "
                "GROUP BY CAST((at - ?) / ? AS INTEGER) ORDER BY 1",
                (service, since, until, since, step),
            )
            return tuple(Sample(*row) for row in rows)

        return await self._ask(read, ())

    async def marks(self, service: str, since: float, until: float, limit: int = 200) -> tuple[Mark, ...]:
        """The newest marks of the span, oldest first."""

        def read(db: sqlite3.Connection) -> tuple[Mark, ...]:
            rows = db.execute(
                "SELECT at, kind, text FROM marks WHERE service = ? AND at >= ? AND at <= ? ORDER BY at DESC LIMIT ?",
                (service, since, until, limit),
            ).fetchall()
            # A newer console may have left marks of other kinds.
            return tuple(Mark(at, _KINDS[kind], text) for at, kind, text in reversed(rows) if kind in _KINDS)

        return await self._ask(read, ())

    async def requests(self, service: str, limit: int = 100) -> tuple[RequestRow, ...]:
        """The newest requests, newest first."""

        def read(db: sqlite3.Connection) -> tuple[RequestRow, ...]:
            rows = db.execute(
                "SELECT at, ttft, decode, commit_length, completion, prompt, error FROM requests WHERE service = ? "
                "ORDER BY rowid DESC LIMIT ?",
                (service, limit),
            )
            return tuple(RequestRow(*row) for row in rows)

        return await self._ask(read, ())

    async def operations(self, service: str, limit: int = 50) -> tuple[OperationRow, ...]:
        """The newest operations, newest first."""

        def read(db: sqlite3.Connection) -> tuple[OperationRow, ...]:
            rows = db.execute(
                "SELECT at, id, what, verdict, reason, seconds, stages FROM operations WHERE service = ? "
                "ORDER BY at DESC LIMIT ?",
                (service, limit),
            )
            return tuple(
                OperationRow(at, key, what, verdict, reason, seconds, json.loads(stages))
                for at, key, what, verdict, reason, seconds, stages in rows
            )

        return await self._ask(read, ())

    async def baseline(self, service: str) -> Baseline | None:
        def read(db: sqlite3.Connection) -> Baseline | None:
            row = db.execute("SELECT at, decode, note FROM baselines WHERE service = ?", (service,)).fetchone()
            return None if row is None else Baseline(*row)

        return await self._ask(read, None)

    async def stage_seconds(self, service: str, newest: int = 8) -> Mapping[str, float]:
        """Median seconds of each stage over the newest confirmed operations of this service: what to expect next time."""
        seen: dict[str, list[float]] = {}
        for row in await self.operations(service, 50):
            if row.verdict == "confirmed":
                for name, seconds in row.stages.items():
                    if len(seen.setdefault(name, [])) < newest:
                        seen[name].append(seconds)
        return {name: median(values) for name, values in seen.items()}

    async def close(self) -> None:
        """Finish what was asked and close the file. What is asked later is not done, and answered with nothing."""
        if not self._closed:
            self._closed = True
            self._jobs.put(None)
            await asyncio.to_thread(self._thread.join, 5.0)

    def _post(self, work: Work) -> None:
        if not self._closed:
            self._jobs.put(_Job(partial(_and_no_more, work), _nothing))

    async def _ask(self, work: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        """The answer of ``work``; ``otherwise`` where there is none."""
        if self._closed:
            return otherwise
        future: Future[T] = Future()

        def answer(result: T) -> None:
            # Whoever asked may have been cancelled meanwhile.
            if future.set_running_or_notify_cancel():
                future.set_result(result)

        self._jobs.put(_Job(lambda db: partial(answer, work(db)), partial(answer, otherwise)))
        return await asyncio.wrap_future(future)

    def _serve(self) -> None:
        """The thread. It outlives every failure of a job: whoever waits for an answer would wait for ever without it."""
        db: sqlite3.Connection | None = None
        try:
            db = _open(self._path)
        except (sqlite3.Error, OSError) as error:
            self._problem = self._words(error)
        while (job := self._jobs.get()) is not None:
            if db is None:
                job.give_up()
                continue
            try:
                with db:
                    then = job.work(db)
                self._problem = None
            except Exception as error:
                self._problem = self._words(error)
                then = job.give_up
            then()
        if db is not None:
            with contextlib.suppress(sqlite3.Error):
                db.close()

    def _words(self, error: Exception) -> str:
        return f"history is not kept: {self._path}: {error}"


def _nothing() -> None:
    """Nobody waits for an answer."""


def _and_no_more(work: Work, db: sqlite3.Connection) -> Callable[[], None]:
    work(db)
    return _nothing


def _open(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        return _connect(path)
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise
        path.rename(path.with_name(f"{path.name}.broken-{int(time.time())}"))
        return _connect(path)


def _connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=2.0, check_same_thread=False)
    try:
        path.chmod(0o600)
        db.execute("PRAGMA journal_mode = WAL")
        # A lost last second of samples is no loss; an fsync per sample would be a disk write a second.
        db.execute("PRAGMA synchronous = NORMAL")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise sqlite3.OperationalError("it was written by a newer console")
        db.executescript(_SCHEMA)
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        db.commit()
    except BaseException:
        db.close()
        raise
    return db


def thin(db: sqlite3.Connection, service: str, now: float, keep_s: float) -> None:
    """Replace old samples by means over a step, drop those that are too old, and bound the other tables."""
    for age, step in COARSE:
        # Whole steps only: the mean of half a step would be replaced, and so lost, by the mean of the other half.
        old = (service, (now - age) // step * step, step)
        db.execute(
            f"INSERT OR REPLACE INTO samples SELECT service, CAST(at / ?3 AS INTEGER) * ?3, ?3, {_MEANS} FROM samples "
            "WHERE service = ?1 AND at < ?2 AND span < ?3 GROUP BY CAST(at / ?3 AS INTEGER)",
            old,
        )
        db.execute("DELETE FROM samples WHERE service = ?1 AND at < ?2 AND span < ?3", old)
    db.execute("DELETE FROM samples WHERE service = ? AND at < ?", (service, now - keep_s))
    db.execute("DELETE FROM marks WHERE service = ? AND at < ?", (service, now - keep_s))
    db.execute("DELETE FROM requests WHERE rowid <= (SELECT MAX(rowid) FROM requests) - ?", (_REQUESTS_KEPT,))
