"""Sending prompts from a widget: a worker streams, messages fill the answers, and the widget repaints at a readable pace."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from textual.timer import Timer
from textual.widget import Widget
from textual.worker import Worker

from ..evidence.values import whole
from ..formats import shorten
from . import messages
from .answers import Answer
from .link import LinkError
from .work import begin

if TYPE_CHECKING:
    from ..load.records import Chunk, RequestRecord
    from ..load.request import PromptRequest
    from .link import HostLink

EXAMPLE = "Write a Python function that merges two sorted lists, with a docstring and two examples."
REPAINT_S = 0.1
"""Between two repaints of streaming answers: an event a verify would repaint far more often than one can read."""

SILENCE_S = 5
"""After so much silence an answer says that nothing comes."""

_RUNS = itertools.count(1)


class PromptError(ValueError):
    """What was typed cannot be sent; the message says why."""


class PromptRunner:
    """At most one run at a time per owner, and its answers; starting another ends the one before, which frees its slots.

    The owner hands its ``ChunkArrived``, ``AnswerEnded`` and ``PromptsEnded`` messages on; those of another run are not taken.
    """

    def __init__(self, owner: Widget, repaint: Callable[[], None]) -> None:
        """``repaint`` is called while answers stream, at most every :data:`REPAINT_S`, and when the run ends."""
        self._owner = owner
        self._repaint = repaint
        self._worker: Worker[None] | None = None
        self._timer: Timer | None = None
        self._dirty = False
        self._run = 0
        self._heard: dict[int, float] = {}
        """When something of each answer came last."""
        self.answers: list[Answer] = []

    @property
    def running(self) -> bool:
        return self._worker is not None and self._worker.is_running

    def start(self, link: HostLink, requests: Sequence[PromptRequest]) -> None:
        """Send the prompts at once."""
        self.cancel()
        self._run = next(_RUNS)
        self.answers = [Answer(number) for number in range(len(requests))]
        self._heard = dict.fromkeys(range(len(requests)), time.monotonic())
        self._worker = begin(
            self._owner, partial(self._send, link, tuple(requests), self._run), "sending prompts", group="prompts"
        )
        self._dirty = True
        if self._timer is None:
            self._timer = self._owner.set_interval(REPAINT_S, self._repaint_when_dirty)
        else:
            self._timer.resume()

    def cancel(self) -> None:
        """End the run; its connections are closed."""
        if self._worker is not None:
            self._worker.cancel()
            self._worker = None
        if self._timer is not None:
            self._timer.pause()

    def take_chunk(self, message: messages.ChunkArrived) -> bool:
        """Put new text to its answer; whether it was of this run."""
        if message.run == self._run:
            self.answers[message.chunk.request].add(message.chunk)
            self._heard[message.chunk.request] = time.monotonic()
            self._dirty = True
        return message.run == self._run

    def take_end(self, message: messages.AnswerEnded) -> bool:
        """Put the figures to their answer; whether it was of this run."""
        if message.run == self._run:
            self.answers[message.record.request].record = message.record
            self._dirty = True
        return message.run == self._run

    def take_run_end(self, message: messages.PromptsEnded) -> bool:
        """Stop repainting; whether it was this run that ended."""
        if message.run == self._run and self._timer is not None:
            self._timer.pause()
        return message.run == self._run

    def _repaint_when_dirty(self) -> None:
        now = time.monotonic()
        for answer in self.answers if self.running else ():
            silent = int(now - self._heard.get(answer.number, now)) if answer.record is None else 0
            if silent >= SILENCE_S and silent != answer.silent_s:
                answer.silent_s = silent
                self._dirty = True
        if self._dirty:
            self._dirty = False
            self._repaint()

    async def _send(self, link: HostLink, requests: tuple[PromptRequest, ...], run: int) -> None:
        def chunk(arrived: Chunk) -> None:
            self._owner.post_message(messages.ChunkArrived(run, arrived))

        def done(record: RequestRecord) -> None:
            self._owner.post_message(messages.AnswerEnded(run, record))

        sentence = ""
        try:
            await link.send(requests, chunk, done)
        except LinkError as error:
            sentence = str(error)
        except Exception as error:
            self._owner.post_message(messages.PromptsEnded(run, f"an error of the console's own ({type(error).__name__})"))
            raise
        self._owner.post_message(messages.PromptsEnded(run, sentence))


def make_requests(
    text: str, copies: str, temperature: str, max_tokens: str, custom: Mapping[str, bool] | None = None, *, raw: bool = False
) -> tuple[PromptRequest, ...]:
    """Requests from what stands in the fields.

    Args:
        custom: per-request engine settings.
        raw: continue the text as it stands, without the model's chat template.

    Raises:
        PromptError: a field cannot be read; the sentence names it and what it takes.
    """
    from dataclasses import replace

    from ..load.request import Endpoint, PromptRequest

    if not text.strip():
        raise PromptError("the prompt is empty: write one, or choose one of a suite")
    number = _whole("n (parallel copies)", copies, 1, 64)
    limit = _whole("max (tokens of an answer)", max_tokens, 1, 32_768)
    try:
        heat = float(temperature)
    except ValueError:
        heat = -1.0
    if not 0 <= heat <= 2:
        raise PromptError(f"T (temperature) takes a number from 0 to 2, not {temperature.strip() or 'nothing'}")
    # A raw text's last space or newline is part of what is continued.
    endpoint, prompt = (Endpoint.GENERATE, text) if raw else (Endpoint.CHAT, text.strip())
    request = PromptRequest.of(prompt, endpoint=endpoint, max_tokens=limit, temperature=heat)
    if custom:
        request = replace(request, custom_params=dict(custom))
    return (request,) * number


def _whole(name: str, text: str, least: int, most: int) -> int:
    number = whole(text.strip())
    if number is None or not least <= number <= most:
        raise PromptError(f"{name} takes a whole number from {least} to {most}, not {shorten(text.strip(), 20) or 'nothing'}")
    return number
