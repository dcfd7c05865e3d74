"""Matrix products with few rows on a CPU: weights packed once for oneDNN.

A decode step multiplies 1 to about 30 rows with every weight. ``torch.nn.functional.linear`` sends fp32 products to a library
that handles such shapes poorly on some CPUs (on an AVX2-only AMD core a ``[17, 576] x [576, 49152]`` product took 45 ms there
and 17 ms in oneDNN with packed weights, one row 18 ms against 9 ms), so weights are packed where oneDNN is built in.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

PACK_ROWS_HINT = 16
"""Rows for which oneDNN picks the packed layout: about the width of a verify."""


def packing_available(dtype: torch.dtype) -> bool:
    """Whether this build of torch can pack weights of ``dtype``."""
    return (
        torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and (dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()))
    )


class Linear:
    """``x @ weight.T`` for a frozen ``weight`` of shape ``[out, in]``."""

    def __init__(self, weight: Tensor) -> None:
        self.out_features, self.in_features = weight.shape
        self._packed = packing_available(weight.dtype)
        self._weight: Tensor = (
            torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), PACK_ROWS_HINT) if self._packed else weight
        )

    def __call__(self, x: Tensor) -> Tensor:
        """``[R, in]`` to ``[R, out]``."""
        if not self._packed:
            return F.linear(x, self._weight)
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, None, "none", [], "")
        return out

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """``residual + x @ weight.T``, in one step where the library can."""
        if not self._packed:
            return residual + F.linear(x, self._weight)
        out: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, residual, self._weight, None, "add")
        return out
