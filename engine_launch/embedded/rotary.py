"""Rotary position embedding in the rotate-half form, from a table of cosines and sines by absolute position."""

from __future__ import annotations

import torch
from torch import Tensor


class RotaryTable:
    """Cosines and sines for positions ``0 … positions - 1``, made once."""

    def __init__(self, head_dim: int, theta: float, positions: int, dtype: torch.dtype) -> None:
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
        # As Hugging Face computes them: the frequencies and their products in fp32.
        frequencies = (1.0 / theta**exponents).to(torch.float32)
        angles = torch.outer(torch.arange(positions, dtype=torch.float32), frequencies)
        # In fp64 models the table is made in fp64, so that tests of exactness are not limited by it.
        if dtype == torch.float64:
            angles = torch.outer(torch.arange(positions, dtype=torch.float64), 1.0 / theta**exponents)
        cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
        # Both halves of a head side by side, with the sign of the first half's sine taken in: see rotate().
        self._cos = torch.stack([cos, cos], dim=1)
        self._sin = torch.stack([-sin, sin], dim=1)

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """``[R]`` positions to cosines and signed sines ``[R, 1, 2, head_dim / 2]``."""
        return self._cos[positions].unsqueeze(1), self._sin[positions].unsqueeze(1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate ``x`` (``[R, heads, head_dim]``) by the angles of its rows; returns a new tensor."""
    halves = x.view(*x.shape[:-1], 2, x.shape[-1] // 2)
    return (halves * cos).addcmul_(halves.flip(2), sin).flatten(2)
