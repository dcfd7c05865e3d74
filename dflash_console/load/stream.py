"""Reading an answer's events: one reader per endpoint, each a fold over the ``data:`` payloads with their arrival times.

Pure: no connection and no clock, so that a recorded stream reads exactly as a live one. Bad input never raises; it becomes
the record's error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ..evidence.values import read_json
from .records import Chunk, CommitSource, RequestRecord, SpeedSource, mean_commit_length
from .request import Endpoint

DONE = "[DONE]"

_UNFINISHED = "\ufffd"
"""What a decoder shows for the bytes of a character that is not complete yet."""

_SHORTEST_SPAN_S = 0.001
"""Chunks that arrive within less than this came in one piece; a rate made of them would be noise."""


class StreamReader(Protocol):
    """Folds one answer's events."""

    def feed(self, data: str, at: float) -> Chunk | None:
        """Take one event's data, ``at`` seconds after the request was sent; the chunk it brought, if any."""

    def record(self, total_s: float, error: str | None = None) -> RequestRecord:
        """The figures of everything fed so far."""


def reader_for(endpoint: Endpoint, request: int) -> StreamReader:
    """The reader of ``endpoint``'s events for parallel request number ``request``."""
    return GenerateReader(request) if endpoint is Endpoint.GENERATE else ChatReader(request)


@dataclass
class _Figures:
    """What both endpoints report, gathered as it comes."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    verify_calls: int | None = None
    histogram: tuple[int, ...] = ()
    accept_length: float | None = None
    decode_throughput: float | None = None
    finish_reason: str | None = None
    error: str | None = None

    def take_meta_info(self, meta: Mapping[str, object]) -> None:
        """SGLang's ``meta_info``; the ``spec_*`` fields come with the last event only."""
        self.prompt_tokens = _int(meta.get("prompt_tokens"), self.prompt_tokens)
        self.completion_tokens = _int(meta.get("completion_tokens"), self.completion_tokens)
        self.cached_tokens = _int(meta.get("cached_tokens"), self.cached_tokens)
        self.verify_calls = _int(meta.get("spec_verify_ct"), self.verify_calls)
        self.accept_length = _float(meta.get("spec_accept_length"), self.accept_length)
        self.decode_throughput = _float(meta.get("decode_throughput"), self.decode_throughput)
        # The second name is that of releases before the first came.
        for name in ("spec_correct_drafts_histogram", "spec_accept_histogram"):
            counts = meta.get(name)
            if isinstance(counts, list) and all(_int(count, None) is not None for count in counts):
                self.histogram = tuple(counts)
                break
        reason = meta.get("finish_reason")
        if isinstance(reason, dict):
            kind = reason.get("type")
            self.finish_reason = kind if isinstance(kind, str) else self.finish_reason
            if kind == "abort" and isinstance(reason.get("message"), str) and reason["message"]:
                self.error = f"the server ended the request: {reason['message']}"
        elif isinstance(reason, str):
            self.finish_reason = reason

    def commit_length(self) -> tuple[float | None, CommitSource]:
        mean = mean_commit_length(self.histogram)
        if mean is not None:
            return mean, CommitSource.HISTOGRAM
        if self.verify_calls and self.completion_tokens is not None:
            return max(0, self.completion_tokens - 1) / self.verify_calls, CommitSource.VERIFY_CALLS
        if self.accept_length is not None:
            return self.accept_length, CommitSource.REPORTED
        return None, CommitSource.NONE


@dataclass
class _Arrivals:
    """When chunks came and how many tokens the first one brought."""

    chunks: int = 0
    first_at: float | None = None
    last_at: float = 0.0
    first_tokens: int = 1
    """Prefill makes one token; a server that batches its events may add the first verify's to it."""

    def note(self, at: float, tokens: int | None) -> bool:
        """Count one chunk; whether it was the first."""
        first = self.first_at is None
        if first:
            self.first_at = at
            self.first_tokens = tokens if tokens is not None else 1
        self.last_at = at
        self.chunks += 1
        return first

    def speed(self, figures: _Figures) -> tuple[float | None, SpeedSource]:
        tokens = figures.completion_tokens
        span = self.last_at - self.first_at if self.first_at is not None else 0.0
        if tokens is not None and tokens > self.first_tokens and span >= _SHORTEST_SPAN_S:
            return (tokens - self.first_tokens) / span, SpeedSource.CLIENT
        if figures.decode_throughput is not None:
            return figures.decode_throughput, SpeedSource.ENGINE
        return None, SpeedSource.NONE


@dataclass
class GenerateReader:
    """``/generate``: text and ids are cumulative, or increments when the server runs with incremental streaming output."""

    request: int
    _text: str = ""
    _shown: int = 0
    """How many characters of ``_text`` have been handed out."""
    _ids: list[int] = field(default_factory=list)
    _incremental: bool = False
    """Known from the ids: so many of them as the count says, or so many as it grew."""
    _figures: _Figures = field(default_factory=_Figures)
    _arrivals: _Arrivals = field(default_factory=_Arrivals)

    def feed(self, data: str, at: float) -> Chunk | None:
        event = _event(data, self._figures)
        if event is None:
            return None
        before = self._figures.completion_tokens or 0
        meta = event.get("meta_info")
        if isinstance(meta, dict):
            self._figures.take_meta_info(meta)
        after = self._figures.completion_tokens or 0
        new_ids = self._take_ids(event.get("output_ids"), after)
        # A count that goes back (a request that was retracted) brings nothing.
        tokens = max(0, after - before) if after else len(new_ids)
        text = self._take_text(event.get("text"), ended=self._figures.finish_reason is not None)
        if tokens <= 0 and not text:
            return None
        first = self._arrivals.note(at, tokens)
        return Chunk(self.request, text, at, tokens, new_ids, first)

    def _take_ids(self, ids: object, completion_tokens: int) -> tuple[int, ...]:
        if not isinstance(ids, list):
            return ()
        grown = len(self._ids) + len(ids) == completion_tokens != len(ids)
        self._incremental = self._incremental or grown
        # Of a cumulative list only the end is looked at: a long answer brings thousands of ever longer ones.
        new = ids if self._incremental else ids[len(self._ids) :]
        if not all(isinstance(token, int) for token in new):
            return ()
        self._ids += new
        return tuple(new)

    def _take_text(self, text: object, *, ended: bool) -> str:
        if not isinstance(text, str) or (not text and not self._ids):
            return ""
        before = self._text.rstrip(_UNFINISHED)
        # A text that was cut at a stop word is a beginning of the one before.
        if not self._ids and not text.startswith(before) and not before.startswith(text):
            # Older releases give no ids: what does not begin as the text so far goes on where that ended.
            self._incremental = True
        self._text = self._text + text if self._incremental else text
        # A character whose last bytes are still to come is held back: it will read differently in the next event.
        end = len(self._text) if ended else len(self._text.rstrip(_UNFINISHED))
        new = self._text[self._shown : end]
        self._shown = max(self._shown, end)
        return new

    def record(self, total_s: float, error: str | None = None) -> RequestRecord:
        return _record(self.request, self._figures, self._arrivals, total_s, error, text=self._text, token_ids=tuple(self._ids))


@dataclass
class ChatReader:
    """``/v1/chat/completions``: deltas; token counts come with ``usage`` (in every chunk, in the last, or never)."""

    request: int
    _text: list[str] = field(default_factory=list)
    _reasoning: list[str] = field(default_factory=list)
    _figures: _Figures = field(default_factory=_Figures)
    _arrivals: _Arrivals = field(default_factory=_Arrivals)
    _uncounted: bool = False
    """A chunk brought something and no count: what a later count grew by is not one chunk's."""
    _held: int = 0
    """Tokens that an event without any text counted already: they come with the next one."""

    def feed(self, data: str, at: float) -> Chunk | None:
        event = _event(data, self._figures)
        if event is None:
            return None
        choice = _choice(event.get("choices"))
        tokens = self._take_usage(event.get("usage"), continuous=bool(choice))
        for holder in (event, choice):
            meta = holder.get("meta_info")
            if isinstance(meta, dict):
                self._figures.take_meta_info(meta)
        self._figures.finish_reason = _string(choice.get("finish_reason")) or self._figures.finish_reason
        delta = choice.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        text, reasoning = _content(delta.get("content")), _content(delta.get("reasoning_content") or delta.get("reasoning"))
        brought = bool(text or reasoning or delta.get("tool_calls"))
        if not brought and (not tokens or "role" in delta):
            # Whoever is about to speak is no answer yet, whatever is counted with it.
            self._held += tokens or 0
            return None
        self._uncounted = self._uncounted or tokens is None
        if tokens is not None:
            tokens, self._held = tokens + self._held, 0
        self._text.append(text)
        self._reasoning.append(reasoning)
        first = self._arrivals.note(at, tokens)
        return Chunk(self.request, text or reasoning, at, tokens, first=first, reasoning=bool(reasoning and not text))

    def _take_usage(self, usage: object, *, continuous: bool) -> int | None:
        """Tokens that a chunk brought, by the growth of its running count; ``None`` when chunks carry no count.

        The closing event has a total and no choice: it says nothing about any one chunk.
        """
        if not isinstance(usage, dict):
            return None
        before = self._figures.completion_tokens or 0
        details = usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        self._figures.take_meta_info({**usage, "cached_tokens": cached})
        after = self._figures.completion_tokens
        return max(0, after - before) if continuous and after is not None and not self._uncounted else None

    def record(self, total_s: float, error: str | None = None) -> RequestRecord:
        return _record(
            self.request,
            self._figures,
            self._arrivals,
            total_s,
            error,
            text="".join(self._text),
            reasoning_text="".join(self._reasoning),
        )


def _choice(choices: object) -> Mapping[str, object]:
    """The one answer that was asked for."""
    found = choices if isinstance(choices, list) else []
    return next((choice for choice in found if isinstance(choice, dict) and choice.get("index", 0) == 0), {})


def _content(value: object) -> str:
    """A text, or the texts of OpenAI's list of parts."""
    if isinstance(value, list):
        return "".join(_string(part.get("text")) for part in value if isinstance(part, dict))
    return _string(value)


def error_message(body: object) -> str | None:
    """The message of an error in any of the forms that SGLang and OpenAI use; ``None`` when ``body`` is none of them."""
    if not isinstance(body, dict):
        return None
    error = body.get("error")
    if isinstance(error, dict):
        return _string(error.get("message")) or json.dumps(error)
    if isinstance(error, str) and error:
        return error
    if body.get("object") == "error" or ("message" in body and "choices" not in body and "text" not in body):
        return _string(body.get("message")) or None
    detail = body.get("detail")
    return detail if isinstance(detail, str) and detail else None


def _event(data: str, figures: _Figures) -> Mapping[str, object] | None:
    """The event's object; ``None`` when it ends the stream, is an error (noted) or cannot be read (noted)."""
    if data.strip() in ("", DONE):
        return None
    try:
        event = read_json(data)
    except ValueError:
        figures.error = f"the server sent an event that is not JSON: {data[:80]}"
        return None
    if not isinstance(event, dict):
        figures.error = f"the server sent an event that is not an object: {data[:80]}"
        return None
    message = error_message(event)
    if message is not None:
        figures.error = f"the server ended the answer with an error: {message}"
        return None
    return event


def _record(
    request: int,
    figures: _Figures,
    arrivals: _Arrivals,
    total_s: float,
    error: str | None,
    *,
    text: str,
    reasoning_text: str = "",
    token_ids: tuple[int, ...] = (),
) -> RequestRecord:
    commit_length, commit_source = figures.commit_length()
    decode_tok_s, decode_source = arrivals.speed(figures)
    return RequestRecord(
        request,
        text=text,
        reasoning_text=reasoning_text,
        token_ids=token_ids,
        prompt_tokens=figures.prompt_tokens,
        completion_tokens=figures.completion_tokens,
        cached_tokens=figures.cached_tokens,
        chunks=arrivals.chunks,
        ttft_s=arrivals.first_at,
        total_s=total_s,
        decode_tok_s=decode_tok_s,
        decode_source=decode_source,
        commit_length=commit_length,
        commit_source=commit_source,
        accept_histogram=figures.histogram,
        verify_calls=figures.verify_calls,
        reported_accept_length=figures.accept_length,
        finish_reason=figures.finish_reason,
        error=error or figures.error,
    )


def _int(value: object, otherwise: int | None) -> int | None:
    """A count; it cannot be below zero."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else otherwise


def _float(value: object, otherwise: float | None) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else otherwise


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""
