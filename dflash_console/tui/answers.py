"""Answers while they stream: pieces by verify step, and figures that are honest before the last event. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.style import Style
from rich.text import Text

from .. import formats

if TYPE_CHECKING:
    from ..load.records import Chunk, RequestRecord


@dataclass
class Answer:
    """One request's answer so far. ``pieces`` are the texts of its events: with speculation, one verify each."""

    number: int
    pieces: list[str] = field(default_factory=list)
    tokens: int | None = 0
    """Tokens so far; ``None`` once an event did not say how many it brought."""
    first_at: float | None = None
    last_at: float | None = None
    first_tokens: int = 0
    chunks: int = 0
    silent_s: int = 0
    """Seconds in which nothing has come, where that is long."""
    record: RequestRecord | None = None

    def add(self, chunk: Chunk) -> None:
        """Take one event of the stream."""
        self.chunks += 1
        self.silent_s = 0
        self.pieces.append(chunk.text)
        if chunk.tokens is None:
            self.tokens = None
        elif self.tokens is not None:
            self.tokens += chunk.tokens
        if self.first_at is None:
            self.first_at = chunk.at
            self.first_tokens = chunk.tokens or 0
        self.last_at = chunk.at

    @property
    def text(self) -> str:
        return self.record.text if self.record is not None and self.record.text else "".join(self.pieces)

    @property
    def decode_tok_s(self) -> float | None:
        """Tokens after the first event ÷ time since it: the client's own clock."""
        if self.record is not None:
            return self.record.decode_tok_s
        if self.tokens is None or self.first_at is None or self.last_at is None or self.last_at <= self.first_at:
            return None
        return (self.tokens - self.first_tokens) / (self.last_at - self.first_at)

    @property
    def commit_length(self) -> float | None:
        """Tokens per verify: the server's histogram once the answer has ended, until then tokens per event after the first."""
        if self.record is not None:
            return self.record.commit_length
        if self.tokens is None or self.chunks < 2:
            return None
        return (self.tokens - self.first_tokens) / (self.chunks - 1)

    def figures(self, *, brief: bool = False) -> str:
        """``150.8 tok/s · commit 4.51 · TTFT 205 ms · 57 verifies · 257 tokens``; ``brief`` leaves the rest out."""
        record = self.record
        if record is not None and record.error:
            return f"✗ {record.error}"
        parts = [f"{formats.tokens_per_second(self.decode_tok_s)} tok/s"]
        if self.commit_length is not None:
            parts.append(f"commit {formats.commit_length(self.commit_length)}")
        ttft = self.first_at if record is None else record.ttft_s
        parts.append(f"TTFT {formats.milliseconds(ttft)}")
        if record is None:
            if self.first_at is None and self.silent_s:
                return f"nothing has come yet for {self.silent_s} s: a long prompt, a queue, or a frozen engine"
            parts.append("waiting" if self.first_at is None else f"{self.tokens if self.tokens is not None else '?'} tokens …")
            if self.silent_s:
                parts.append(f"nothing more for {self.silent_s} s")
            return " · ".join(parts)
        if record.verify_calls is not None:
            parts.append(f"{record.verify_calls} verifies")
        parts.append(record.counted)
        if brief:
            return " · ".join(parts)
        if record.tokens_per_chunk is not None:
            parts.append(f"{record.tokens_per_chunk:.1f} tokens a chunk")
        if record.cached_tokens:
            parts.append(f"{record.cached_tokens} cached")
        if record.finish_reason:
            parts.append(record.finish_reason)
        if record.note:
            parts.append(record.note)
        return " · ".join(parts)

    def shaded(self, shades: tuple[str, ...]) -> Text:
        """The answer with each verify's tokens on a ground of their own; neighbours always differ.

        Without ``shades`` (a terminal that has no colours, or only sixteen) every other verify is underlined.
        """
        text = Text(overflow="fold")
        styles = [Style(bgcolor=shade) for shade in shades] or [Style(), Style(underline=True)]
        number = 0
        for piece in self.pieces:
            if not piece:
                continue
            text.append(piece, styles[number % len(styles)])
            number += 1
        return text

    def tail(self, width: int) -> str:
        """The newest text in one line."""
        return formats.shorten(" ".join(self.text.split()), width, keep_end=True)
