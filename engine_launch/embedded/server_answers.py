"""Asked-for answers: from the engine's thread to an async stream of steps.

A step is what one prefill or one verify brought: its tokens stay together, so that a client sees what a commit was.
Several copies of one prompt, or several prompts of one call, are one :class:`AnswerSet` whose steps come interleaved.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass

from engine_launch.embedded.api import (
    Engine,
    EngineError,
    FinishReason,
    GenerateRequest,
    RequestStats,
    RoundRecord,
    TokenEvent,
)
from engine_launch.embedded.metrics import ServerMetrics
from engine_launch.embedded.server_text import AnswerText
from engine_launch.embedded.tokenizer import Tokenizer


@dataclass(frozen=True)
class Step:
    """What became visible with one event of the engine."""

    delta: str
    """New text; may be empty while half a character or the beginning of a stop string is held back."""
    token_ids: tuple[int, ...]
    """New tokens."""
    stats: RequestStats
    finish: FinishReason | None
    round: RoundRecord | None
    first: bool


class Answer:
    """One submitted request and what has come of it."""

    def __init__(self, index: int, request: GenerateRequest, text: AnswerText) -> None:
        self.index = index
        """Place among the answers of its call."""
        self.request = request
        self.output_ids: list[int] = []
        self.received = time.time()
        """Unix time of the four moments that ``meta_info`` tells."""
        self.dispatched = self.received
        self.sent = 0.0
        """Of the first event that left; 0 until then."""
        self.finished = 0.0
        self.submitted = False
        """The engine has taken it: until then its id may be that of another client's request."""
        self.done = False
        self._text = text

    @property
    def text(self) -> str:
        return self._text.text

    def absorb(self, event: TokenEvent) -> Step:
        """Take the engine's next event in."""
        first = not self.output_ids
        self.output_ids.extend(event.token_ids)
        delta = self._text.push(event.token_ids, event.finish)
        self.done = event.finish is not None
        return Step(delta, event.token_ids, event.stats, event.finish, event.round, first)


class AnswerSet:
    """The answers of one call; ``metrics`` is ``None`` for probes, which must not count.

    Iterate over :meth:`steps` once; leaving early must be followed by :meth:`abort`.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        metrics: ServerMetrics | None,
        requests: Sequence[GenerateRequest],
        *,
        streaming: bool,
    ) -> None:
        self._engine = engine
        self._metrics = metrics
        self._streaming = streaming
        self._events: asyncio.Queue[tuple[Answer, TokenEvent]] = asyncio.Queue()
        self.answers = tuple(
            Answer(index, request, AnswerText(tokenizer.detokenizer(), request.sampling.stop))
            for index, request in enumerate(requests)
        )

    def submit(self) -> None:
        """Hand every request to the engine, or none.

        Raises:
            EngineError: the engine refuses one.
        """
        try:
            for answer in self.answers:
                answer.dispatched = time.time()
                self._engine.submit(answer.request, self._listener(answer))
                answer.submitted = True
        except EngineError:
            self.abort()
            raise

    def _listener(self, answer: Answer) -> Callable[[TokenEvent], None]:
        loop = asyncio.get_running_loop()
        started = time.monotonic()
        last_token: float | None = None

        def on_event(event: TokenEvent) -> None:
            # On the engine's thread: figures are taken here, so that they count even when the client has gone.
            nonlocal last_token
            now = time.monotonic()
            if event.finish is not None:
                answer.finished = time.time()
            if self._metrics is not None:
                self._observe(self._metrics, event, now - started, None if last_token is None else now - last_token)
            last_token = now if event.token_ids else last_token
            # A loop that closes under us at shutdown must not fail the engine.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._events.put_nowait, (answer, event))

        return on_event

    def _observe(self, metrics: ServerMetrics, event: TokenEvent, since_start: float, since_token: float | None) -> None:
        if event.token_ids and since_token is None:
            metrics.first_token(since_start, streaming=self._streaming)
        elif event.token_ids and since_token is not None:
            metrics.tokens(len(event.token_ids), since_token)
        if event.finish is not None:
            metrics.finished(event.stats, event.finish, since_start, streaming=self._streaming)

    async def steps(self) -> AsyncGenerator[tuple[Answer, Step]]:
        """All answers as they grow; each one's last step has a ``finish``."""
        while not all(answer.done for answer in self.answers):
            answer, event = await self._events.get()
            if not answer.done:
                yield answer, answer.absorb(event)

    async def last_steps(self) -> list[Step]:
        """Wait for the end of all; the last step of each, in the order of the requests."""
        last: dict[int, Step] = {}
        async for answer, step in self.steps():
            last[answer.index] = step
        return [last[answer.index] for answer in self.answers]

    def ask_abort(self, rid: str | None = None) -> None:
        """Ask the engine to end what is not over; the answers then end with its ``abort`` event, and clients are told.

        Args:
            rid: only the answer of this id, or all copies of the call of this id (they are ``rid_0``, ``rid_1`` …).
        """
        for answer in self.answers:
            own = answer.request.rid
            if not answer.done and rid in (None, own, own.rpartition("_")[0]):
                self._engine.abort(own)

    def abort(self) -> None:
        """Free the engine of what is not over; safe to call at any time."""
        for answer in self.answers:
            if not answer.done:
                answer.done = True
                if answer.submitted:
                    self._engine.abort(answer.request.rid)
