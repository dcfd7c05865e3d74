"""What rounds cost, corrected by the times of the rounds themselves.

The measurement at the start may have met a busy machine, and machines change. So the figures of a :class:`CostModel` are taken
as the state of a Kalman filter: each round's times move them, those most that are least certain. Two kinds of error are foreseen.
All figures may be wrong by the same factor (something else used the machine): that is large, and found out within a few rounds
from whatever widths there were. Each figure may be wrong by itself, neighbouring widths in like manner: that is small, and takes
some dozen rounds that use it. What is known fades slowly, so that the figures can follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from engine_launch.embedded.verify_cost import NEAR, CostModel, convex, knots

COMMON, OWN = 0.5, 0.1
"""Standard deviations, relative: of a factor that all figures share, and of each figure by itself."""
NEIGHBOURS = 3.0
"""So many measured widths further, two errors have little in common (correlation 1/e)."""
PER_TOKEN, PER_TOKEN_AND_ROW, PER_REQUEST = 1e-4, 1e-5, 1e-2
"""The same for figures that may have been measured as nothing: relative to the time of one row."""
NOISE = 0.1
"""Standard deviation of one round's time, relative."""
OUTLIER = 3.0
"""An error beyond so many standard deviations counts as one of so many."""
FADING = 0.002
"""How far what is known goes back to the uncertainty of the start in each round."""


class CostTracker:
    """A cost model that learns. :attr:`model` is a new object after each round and may be read from any thread."""

    def __init__(self, start: CostModel) -> None:
        self.model = start
        self._state = torch.tensor(
            [*start.base, start.further, start.each, start.row, start.drafting, start.drafting_further], dtype=torch.float64
        )
        count = len(start.widths)
        at = torch.arange(len(self._state), dtype=torch.float64)
        self._alike = torch.exp(-(at[:, None] - at).abs() / NEIGHBOURS)
        self._alike[count:] = self._alike[:, count:] = 0.0
        self._alike.fill_diagonal_(1.0)
        self._least = torch.zeros(len(self._state), dtype=torch.float64)
        self._least[count : count + 3] = torch.tensor([PER_REQUEST, PER_TOKEN, PER_TOKEN_AND_ROW])
        self._covariance = self._uncertainty()

    def _uncertainty(self) -> torch.Tensor:
        """Covariance of the figures when nothing but a measurement of unknown quality is known."""
        common = COMMON * self._state
        own = OWN * self._state + self._state[0] * self._least
        return torch.outer(common, common) + torch.outer(own, own) * self._alike

    def observe(self, rows: Sequence[int], contexts: Sequence[int], verify: float, drafting: float, drafted: int) -> None:
        """Learn from one round.

        Args:
            rows: of each request in the verify.
            contexts: committed tokens of each.
            verify: seconds.
            drafting: seconds of draft, candidates and append.
            drafted: how many requests had a draft.
        """
        model = self.model
        self._covariance += FADING * (self._uncertainty() - self._covariance)
        features = [0.0] * len(self._state)
        count = len(model.widths)
        left, share = knots(model.widths, sum(rows))
        features[left], features[left + 1] = 1.0 - share, share
        further = [context - NEAR for context in contexts]
        features[count] = len(rows) - 1
        features[count + 1] = sum(further)
        features[count + 2] = sum(context * one for context, one in zip(further, rows, strict=True))
        self._correct(features, verify)
        if drafted:
            self._correct([*(0.0 for _ in range(count + 3)), 1.0, drafted - 1.0], drafting)
        base = convex(model.widths, [max(seconds, 1e-6) for seconds in self._state[:count].tolist()])
        more, each, row, one, other = (max(0.0, value) for value in self._state[count:].tolist())
        self.model = replace(model, base=base, further=more, each=each, row=row, drafting=one, drafting_further=other)

    def _correct(self, features: list[float], seconds: float) -> None:
        seen = torch.tensor(features, dtype=torch.float64)
        expected = float(seen @ self._state)
        covered = self._covariance @ seen
        variance = float(seen @ covered) + (NOISE * max(expected, 1e-6)) ** 2
        bound = OUTLIER * variance**0.5
        error = min(max(seconds - expected, -bound), bound)
        gain = covered / variance
        self._state += gain * error
        self._covariance -= torch.outer(gain, covered)
