"""Sending prompts from a widget: a worker streams, the widget gets messages."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from textual.widget import Widget
from textual.worker import Worker

from . import messages
from .link import LinkError

if TYPE_CHECKING:
    from ..load.records import Chunk, RequestRecord
    from ..load.request import PromptRequest
    from .link import HostLink

_RUNS = itertools.count(1)


class PromptError(ValueError):
    """What was typed cannot be sent; the message says why."""


class PromptRunner:
    """At most one run at a time per owner; starting another ends the one before, which frees its slots."""

    def __init__(self, owner: Widget) -> None:
        self._owner = owner
        self._worker: Worker[None] | None = None
        self.run = 0

    @property
    def running(self) -> bool:
        return self._worker is not None and self._worker.is_running

    def start(self, link: HostLink, requests: Sequence[PromptRequest]) -> int:
        """Send the prompts at once; messages carry the number that is returned."""
        self.cancel()
        self.run = next(_RUNS)
        self._worker = self._owner.run_worker(
            self._send(link, tuple(requests), self.run), name="prompts", group="prompts", exit_on_error=False
        )
        return self.run

    def cancel(self) -> None:
        """End the run; its connections are closed."""
        if self._worker is not None:
            self._worker.cancel()
            self._worker = None

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
        self._owner.post_message(messages.PromptsEnded(run, sentence))


def make_requests(
    text: str, copies: str, temperature: str, max_tokens: str, custom: Mapping[str, bool] | None = None
) -> tuple[PromptRequest, ...]:
    """Requests from what stands in the fields; ``custom`` are per-request engine settings.

    Raises:
        PromptError: a field cannot be read; the sentence names it and what it takes.
    """
    from dataclasses import replace

    from ..load.request import PromptRequest

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
    request = PromptRequest.of(text.strip(), max_tokens=limit, temperature=heat)
    if custom:
        request = replace(request, custom_params=dict(custom))
    return (request,) * number


def _whole(name: str, text: str, least: int, most: int) -> int:
    if not text.strip().isdigit() or not least <= int(text) <= most:
        raise PromptError(f"{name} takes a whole number from {least} to {most}, not {text.strip() or 'nothing'}")
    return int(text)
