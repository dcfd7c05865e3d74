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
        self._cos = angles.cos().to(dtype)
        self._sin = angles.sin().to(dtype)

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """``[R]`` positions to cosines and sines ``[R, 1, head_dim / 2]``."""
        return self._cos[positions].unsqueeze(1), self._sin[positions].unsqueeze(1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate ``x`` (``[R, heads, head_dim]``) by the angles of its rows; returns a new tensor."""
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    out = torch.empty(x.shape, dtype=x.dtype)
    torch.mul(first, cos, out=out[..., :half])
    torch.mul(second, cos, out=out[..., half:])
    out[..., :half].addcmul_(second, sin, value=-1)
    out[..., half:].addcmul_(first, sin)
    return out
