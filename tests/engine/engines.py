"""Engines for tests: closed at the end, with a log that keeps what happened, and with a drafter that knows the answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from engine_launch.embedded.api import Algorithm
from engine_launch.embedded.engine import EmbeddedEngine
from engine_launch.embedded.events import DecodeBatch, FirstVerify, PrefillBatch, SettingChange, SilentLog
from engine_launch.embedded.target import TargetModel
from tests.engine.models import OracleDrafter, drafter_config, tiny_drafter, tiny_engine, tiny_settings


class Recorder(SilentLog):
    """Keeps the events that tests ask about."""

    def __init__(self) -> None:
        self.decode: list[DecodeBatch] = []
        self.prefill: list[PrefillBatch] = []
        self.verified: list[FirstVerify] = []
        self.changes: list[SettingChange] = []
        self.warnings: list[str] = []
        self.failures: list[BaseException] = []

    def decode_batch(self, event: DecodeBatch) -> None:
        self.decode.append(event)

    def prefill_batch(self, event: PrefillBatch) -> None:
        self.prefill.append(event)

    def first_verify(self, event: FirstVerify) -> None:
        self.verified.append(event)

    def setting_changed(self, event: SettingChange) -> None:
        self.changes.append(event)

    def warning(self, message: str) -> None:
        self.warnings.append(message)

    def failed(self, error: BaseException) -> None:
        self.failures.append(error)


@contextmanager
def running(engine: EmbeddedEngine) -> Iterator[EmbeddedEngine]:
    try:
        yield engine
    finally:
        engine.close()


@contextmanager
def oracle_engine(
    target: TargetModel,
    texts: list[list[int]],
    answers: list[list[int]],
    algorithm: Algorithm = Algorithm.DDTREE,
    *,
    budget: int = 8,
    draft_window: int = 0,
    accuracy: float = 0.8,
    log: SilentLog | None = None,
) -> Iterator[EmbeddedEngine]:
    known = [[*text, *answer] for text, answer in zip(texts, answers, strict=True)]
    drafter = OracleDrafter(tiny_drafter(target, drafter_config("ssf", window=16)), known, accuracy)
    settings = tiny_settings(algorithm, budget=budget, draft_window=draft_window)
    with running(tiny_engine(target, drafter, settings, log=log)) as engine:
        yield engine
