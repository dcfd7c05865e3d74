"""Candidates of a draft pass, drawn at random."""

from __future__ import annotations

import math

from hypothesis import strategies as st

Candidates = tuple[list[list[int]], list[list[float]]]


@st.composite
def candidates(draw: st.DrawFn) -> Candidates:
    """Up to 4 positions with up to 4 candidates each, best first; token ids differ within a position."""
    depth = draw(st.integers(1, 4))
    ids, logprobs = [], []
    for _ in range(depth):
        k = draw(st.integers(1, 4))
        weights = draw(st.lists(st.integers(1, 50), min_size=k, max_size=k))
        total = sum(weights) + draw(st.integers(0, 20))
        logprobs.append(sorted((math.log(weight / total) for weight in weights), reverse=True))
        ids.append(draw(st.permutations(range(k))))
    return ids, logprobs
