"""Choosing the target's token at a node: greedy, or a draw from the processed distribution.

A draw uses one uniform number per emitted token and the inverse of the cumulative distribution. Only nodes on the accepted
path are drawn at, so with a seed an answer is the same whether it was decoded plainly, by a chain or by a tree (up to
floating-point differences between batch shapes), and each emitted token is an independent draw from the target.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine_launch.embedded.api import SamplingParams

GREEDY_TEMPERATURE = 1e-6
"""Below this, sampling is greedy (SGLang's bound): logits divided by less overflow long before a draw could differ."""


def is_greedy(params: SamplingParams) -> bool:
    """Whether the request takes the most likely token at every node."""
    return params.temperature < GREEDY_TEMPERATURE or params.top_k == 1


def probabilities(logits: Tensor, params: SamplingParams) -> Tensor:
    """The distribution that is sampled from, ``[V]`` fp64, from the target's logits ``[V]``.

    Temperature first, then top-k, top-p (the smallest set of most likely tokens whose probability reaches ``top_p``) and
    min-p (tokens with at least ``min_p`` times the probability of the best), renormalised after each step.
    """
    probs = torch.softmax(logits.double() / params.temperature, dim=-1)
    if 0 < params.top_k < probs.shape[-1]:
        kept, ids = probs.topk(params.top_k)
        probs = torch.zeros_like(probs).scatter_(0, ids, kept)
        probs /= probs.sum()
    if params.top_p < 1.0:
        ordered, ids = probs.sort(descending=True)
        before = ordered.cumsum(0) - ordered
        ordered[before >= params.top_p] = 0.0
        probs = torch.zeros_like(probs).scatter_(0, ids, ordered)
        probs /= probs.sum()
    if params.min_p > 0.0:
        probs[probs < params.min_p * probs.max()] = 0.0
        probs /= probs.sum()
    return probs


class Sampler:
    """Chooses tokens for one request; holds the request's own random generator."""

    def __init__(self, params: SamplingParams, default_seed: int) -> None:
        self._params = params
        self.greedy = is_greedy(params)
        self._generator = torch.Generator().manual_seed(default_seed if params.seed is None else params.seed)

    def choose(self, logits: Tensor) -> int:
        """The next token after a node with these target logits (``[V]``)."""
        if self.greedy:
            return int(logits.argmax())
        cumulative = probabilities(logits, self._params).cumsum(0)
        uniform = torch.rand((), generator=self._generator, dtype=torch.float64) * cumulative[-1]
        # right=True skips tokens of probability zero, also at the very beginning.
        index = int(torch.searchsorted(cumulative, uniform, right=True))
        if index >= len(cumulative):  # only rounding can get here: take the last token that can occur
            index = int(torch.searchsorted(cumulative, cumulative[-1]))
        return index
