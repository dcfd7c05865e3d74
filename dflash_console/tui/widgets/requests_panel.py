"""Requests, times to first token and caches, in a few lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.text import Text

from ...formats import count, milliseconds, percent, shorten, size
from .panel import Panel

if TYPE_CHECKING:
    from ...state import Rates


class RequestsPanel(Panel):
    """The figures of the requests that run now and of those that finished lately."""

    topic = "requests"

    def __init__(self, title: str, *, id: str) -> None:  # noqa: A002
        super().__init__(title, id=id)
        self._rates: Rates | None = None

    def show_rates(self, rates: Rates) -> None:
        """Show the newest figures; a figure that the engine does not export is an en dash."""
        self._rates = rates
        self.redraw()

    def redraw(self) -> None:
        rates = self._rates
        if rates is None:
            return
        width, height = self.inner_size()
        rows = [
            ("running · queued", f"{count(rates.running)} · {count(rates.queued)}"),
            ("TTFT p50 · p95" if width > 28 else "TTFT", f"{milliseconds(rates.ttft_p50_s)} · {milliseconds(rates.ttft_p95_s)}"),
            ("KV used", f"{percent(rates.kv_usage)} · {count(rates.kv_tokens)} tok"),
            ("prefix cached", percent(rates.cached_share)),
            ("draft KV", size(rates.draft_kv_bytes)),
        ]
        if rates.round_s is not None:
            rows += _round_rows(rates.round_s, rates.round_shares)
        self.show_lines([_line(label, value, width) for label, value in rows[: max(1, height)]])


def _round_rows(seconds: float, shares: Mapping[str, float]) -> list[tuple[str, str]]:
    verify, draft = shares.get("verify", 0.0), shares.get("draft", 0.0)
    return [
        ("one round", f"{seconds * 1000:.1f} ms"),
        ("verify · draft", f"{percent(verify)} · {percent(draft)}"),
        ("the other parts", percent(max(0.0, 1 - verify - draft))),
    ]


def _line(label: str, value: str, width: int) -> Text:
    room = width - len(value) - 1
    line = Text(no_wrap=True)
    line.append(shorten(label, room).ljust(max(0, room)) + " ", style="dim")
    line.append(value, style="bold")
    return line
