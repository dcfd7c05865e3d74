"""SGLang's server with fp32 norms, activation and experts: ``python -m tests.gpu.fp32_server`` in the place of
``sglang.launch_server``.

sgl-kernel's fused norms and its activation are written for 16-bit types (0.4.5), so ``--dtype float32`` ends in an error
without this. SGLang's experts take every type but bf16 for fp16, and round each product to it on the way to fp32. Equal text is
a fair test in fp32 only: in bf16 a batch's shape alone moves logits by more than near-ties lie apart. ``TRITON_F32_DEFAULT``
must be ``tf32x3`` or ``ieee`` as well, because Triton multiplies fp32 matrices in TF32 otherwise, which is no better than bf16
for this purpose.

The replacements are made when this module is imported, because SGLang's schedulers are spawned processes, which import it again.
"""

from __future__ import annotations

import importlib
import runpy
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import silu


def normalised(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMS norm in the input's own precision."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def activated(x: Tensor) -> Tensor:
    """SiLU of the first half times the second."""
    gate, up = x.chunk(2, dim=-1)
    return silu(gate) * up


def replace_kernels(kernels: Any) -> None:
    """Put fp32 ways beside the functions of a module like ``sgl_kernel``; 16-bit inputs go on to the original ones."""
    rmsnorm, fused, silu_and_mul = kernels.rmsnorm, kernels.fused_add_rmsnorm, kernels.silu_and_mul

    def any_rmsnorm(
        input: Tensor,  # noqa: A002 - the kernel's own name
        weight: Tensor,
        eps: float = 1e-6,
        out: Tensor | None = None,
        *more: Any,
        **named: Any,
    ) -> Tensor:
        if input.dtype != torch.float32:
            return rmsnorm(input, weight, eps, out, *more, **named)  # type: ignore[no-any-return]
        return _into(out, normalised(input, weight, eps))

    def any_fused(input: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6, *more: Any, **named: Any) -> None:  # noqa: A002
        if input.dtype != torch.float32:
            fused(input, residual, weight, eps, *more, **named)
            return
        residual.add_(input)
        input.copy_(normalised(residual, weight, eps))

    def any_silu_and_mul(input: Tensor, out: Tensor | None = None, *more: Any, **named: Any) -> Tensor:  # noqa: A002
        if input.dtype != torch.float32:
            return silu_and_mul(input, out, *more, **named)  # type: ignore[no-any-return]
        return _into(out, activated(input))

    kernels.rmsnorm, kernels.fused_add_rmsnorm, kernels.silu_and_mul = any_rmsnorm, any_fused, any_silu_and_mul


def replace_experts(module: Any, fp32: Any) -> None:
    """Let experts write their products of fp32 rows in fp32; ``module`` calls the kernel, ``fp32`` is its name for the type."""
    original = module.invoke_fused_moe_kernel

    def any_experts(rows: Tensor, *more: Any, compute_type: Any, **named: Any) -> Any:
        return original(rows, *more, compute_type=fp32 if rows.dtype == torch.float32 else compute_type, **named)

    module.invoke_fused_moe_kernel = any_experts


def _into(out: Tensor | None, value: Tensor) -> Tensor:
    return value if out is None else out.copy_(value)


def _install() -> None:
    # By name: the package is there only where SGLang is.
    replace_kernels(importlib.import_module("sgl_kernel"))
    experts = importlib.import_module("sglang.srt.layers.moe.moe_runner.triton_utils.fused_moe")
    replace_experts(experts, importlib.import_module("triton.language").float32)


if __name__ in ("__main__", "__mp_main__"):
    _install()
if __name__ == "__main__":
    runpy.run_module("sglang.launch_server", run_name="__main__")
