"""RMSNorm in few steps: torch 2.13 runs its own on the CPU as a chain of eight operations, which shows at one row."""

from __future__ import annotations

import torch
from torch import Tensor


class RmsNorm:
    """``x / sqrt(mean(x²) + eps) * weight`` over the last dimension."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        self._weight = weight
        # The scale of a bf16 row is worked out in fp32, as Hugging Face does.
        self._wide = torch.float32 if weight.dtype == torch.bfloat16 else weight.dtype
        self._eps = torch.tensor(eps, dtype=self._wide)
        self._share = 1.0 / weight.shape[-1]

    def __call__(self, x: Tensor) -> Tensor:
        """A new tensor of the shape of ``x``."""
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=self._wide)
        scale = torch.addcmul(self._eps, length, length, value=self._share).rsqrt_()
        return (x * scale).to(x.dtype).mul_(self._weight)
