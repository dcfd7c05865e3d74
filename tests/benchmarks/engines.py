"""One target and one drafter in memory, and an engine per mode over them, for benchmarks that compare modes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from engine_launch.embedded.api import (
    Algorithm,
    GenerateRequest,
    RequestOverrides,
    RequestStats,
    SamplingParams,
    Settings,
    TokenEvent,
)
from engine_launch.embedded.drafter import DFlashDrafter
from engine_launch.embedded.engine import EmbeddedEngine
from engine_launch.embedded.events import SilentLog
from engine_launch.embedded.factory import build_engine
from engine_launch.embedded.options import EngineOptions
from engine_launch.embedded.tokenizer import ChatMessage, Tokenizer


@dataclass(frozen=True)
class Answer:
    """The tokens of one answer and the engine's figures for it."""

    ids: tuple[int, ...]
    stats: RequestStats


class Bench:
    """Loaded models and engines over them; all engines are idle but the one that is asked."""

    def __init__(self, options: EngineOptions) -> None:
        self._first = build_engine(options, SilentLog())
        assert self._first.tokenizer is not None
        self.tokenizer: Tokenizer = self._first.tokenizer
        self.drafter: DFlashDrafter = self._first._drafter  # type: ignore[assignment]
        self._engines = {options.algorithm: self._first}

    def engine(self, algorithm: Algorithm) -> EmbeddedEngine:
        """The engine of a mode; made at the first use, over the same weights."""
        if algorithm not in self._engines:
            first = self._first
            plain = algorithm is Algorithm.PLAIN
            start = first.startup_settings
            settings = (
                Settings(Algorithm.PLAIN, False, 0, 0, 0, 0, 0)
                if plain
                else Settings(algorithm, True, start.block_size, 0, 0, start.draft_window, start.layers_window)
            )
            self._engines[algorithm] = EmbeddedEngine(
                first._target, None if plain else self.drafter, self.tokenizer, settings, first.limits, SilentLog()
            )
        return self._engines[algorithm]

    def close(self) -> None:
        for engine in self._engines.values():
            engine.close()

    def chat(self, text: str) -> tuple[int, ...]:
        """Token ids of one user turn in the model's template."""
        return self.tokenizer.encode(self.tokenizer.apply_chat_template([ChatMessage("user", text)]))

    def ask(
        self, algorithm: Algorithm, prompts: Sequence[tuple[int, ...]], sampling: SamplingParams, parallel: int = 1
    ) -> list[Answer]:
        """Answers of one mode, ``parallel`` requests at a time."""
        answers: list[Answer] = []
        for begin in range(0, len(prompts), parallel):
            answers += ask_together(self.engine(algorithm), prompts[begin : begin + parallel], sampling)
        return answers


def ask_together(
    engine: EmbeddedEngine,
    prompts: Sequence[tuple[int, ...]],
    sampling: SamplingParams,
    own: Sequence[RequestOverrides] | None = None,
) -> list[Answer]:
    """Submit all at once and wait for all; ``own`` has what each request asks for itself."""
    tokens: list[list[int]] = [[] for _ in prompts]
    finals: list[TokenEvent | None] = [None] * len(prompts)
    done = threading.Semaphore(0)

    def listener(index: int) -> None:
        def listen(event: TokenEvent) -> None:
            tokens[index].extend(event.token_ids)
            if event.finish is not None:
                finals[index] = event
                done.release()

        overrides = own[index] if own else RequestOverrides()
        engine.submit(GenerateRequest(f"bench-{index}", prompts[index], sampling, overrides), listen)

    for index in range(len(prompts)):
        listener(index)
    for _ in prompts:
        done.acquire()
    return [Answer(tuple(ids), final.stats) for ids, final in zip(tokens, finals, strict=True) if final is not None]


@contextmanager
def bench(options: EngineOptions) -> Iterator[Bench]:
    """Loaded models, closed at the end."""
    loaded = Bench(options)
    try:
        yield loaded
    finally:
        loaded.close()
