"""Answers of the target from the embedded engine: on a CPU it is many times faster than the decoder made for thousands of slots.

Drafting changes the speed and not the answers, which are the target's own in fp32, greedy or sampled.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from engine_launch.embedded.api import Algorithm, GenerateRequest, SamplingParams, TokenEvent
from engine_launch.embedded.engine import EmbeddedEngine
from engine_launch.embedded.events import SilentLog
from engine_launch.embedded.factory import build_engine
from engine_launch.embedded.options import EngineOptions
from engine_launch.training.dataset import Record
from engine_launch.training.target import END_OF_TEXT, IM_END


class EngineAnswers:
    """An embedded engine that answers lists of prompts; closed at the end of a ``with``."""

    def __init__(self, engine: EmbeddedEngine) -> None:
        self._engine = engine
        self._asked = 0

    @classmethod
    def of(cls, model: Path) -> EngineAnswers:
        """An engine for a GGUF file, in fp32, drafting with the packaged drafter."""
        return cls(build_engine(EngineOptions(model=model, algorithm=Algorithm.DDTREE, dtype="float32"), SilentLog()))

    def __enter__(self) -> EngineAnswers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._engine.close()

    def answer(self, prompts: Sequence[Sequence[int]], limit: int, temperature: float) -> list[Record]:
        """Answers of up to ``limit`` tokens, in the prompts' order; each is sampled with a seed of its own.

        Raises:
            RuntimeError: an answer was broken off.
        """
        tokens: list[list[int]] = [[] for _ in prompts]
        broken: list[str] = []
        done = threading.Semaphore(0)

        def listener(index: int) -> None:
            def listen(event: TokenEvent) -> None:
                tokens[index].extend(event.token_ids)
                if event.finish is not None:
                    if event.finish.type == "abort":
                        broken.append(event.finish.message)
                    done.release()

            sampling = SamplingParams(
                max_new_tokens=limit, temperature=temperature, stop_token_ids=(IM_END, END_OF_TEXT), seed=self._asked
            )
            self._engine.submit(GenerateRequest(f"answer-{self._asked}", tuple(prompts[index]), sampling), listen)
            self._asked += 1

        for index in range(len(prompts)):
            listener(index)
        for _ in prompts:
            done.acquire()
        if broken:
            raise RuntimeError(f"the target's answers were broken off: {broken[0]}")
        return [Record((*p, *t), len(p), 0, temperature) for p, t in zip(prompts, tokens, strict=True)]
