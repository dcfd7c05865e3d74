"""Pieces of answers and logs that the tests of several screens show."""

from __future__ import annotations

from .support import START_LINES

ROUND = {
    "round": 7,
    "root_text": " def",
    "tokens": [5, 6, 7, 8],
    "token_texts": [" merge", "_sorted", " sort", "(a"],
    "parents": [0, 1, 0, 2],
    "logprobs": [-0.1, -0.4, -2.5, -0.9],
    "path": [0, 1, 2],
    "bonus_text": "(left",
    "seconds": {"draft": 0.004, "verify": 0.036},
}
"""A round of a tree, as the embedded engine tells it in an answer."""
TRACEBACK = (
    "[2026-11-29 16:00:05] Scheduler hit an exception: Traceback (most recent call last):",
    '  File "engine.py", line 3, in step',
    "    raise ValueError('no room')",
    "ValueError: no room",
    "[2026-11-29 16:00:06] SIGTERM received, draining",
)
HOT = (*START_LINES, "[2026-11-29 16:01:00] Hot change applied. speculative_ddtree_budget: 8 -> 16 (from /set_internal_state)")
