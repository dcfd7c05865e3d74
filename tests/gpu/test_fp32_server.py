"""fp32 tensors take torch's way through norms and activation and are experts' results too, others the original one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import rms_norm, silu

from tests.gpu.fp32_server import replace_experts, replace_kernels


@pytest.fixture
def kernels() -> Any:
    def original(*_: object, **__: object) -> Tensor:
        return torch.tensor([42.0])

    module = SimpleNamespace(rmsnorm=original, fused_add_rmsnorm=original, silu_and_mul=original)
    replace_kernels(module)
    return module


def test_fp32_norms_are_rms_norms(kernels: Any) -> None:
    x, residual, weight = torch.randn(3, 8), torch.randn(3, 8), torch.rand(8)
    expected = rms_norm(x, (8,), weight, 1e-6)
    assert torch.allclose(kernels.rmsnorm(x, weight, 1e-6), expected)
    out = torch.empty_like(x)
    kernels.rmsnorm(x, weight, 1e-6, out=out, enable_pdl=True)
    assert torch.allclose(out, expected)
    total = x + residual
    kernels.fused_add_rmsnorm(x, residual, weight, 1e-6)
    assert torch.equal(residual, total)
    assert torch.allclose(x, rms_norm(total, (8,), weight, 1e-6))


def test_fp32_activation(kernels: Any) -> None:
    x, out = torch.randn(3, 8), torch.empty(3, 4)
    expected = silu(x[:, :4]) * x[:, 4:]
    assert torch.allclose(kernels.silu_and_mul(x), expected)
    kernels.silu_and_mul(x, out)
    assert torch.allclose(out, expected)


def test_other_types_take_the_original_way(kernels: Any) -> None:
    x = torch.randn(3, 8, dtype=torch.bfloat16)
    assert kernels.rmsnorm(x, x[0], 1e-6).item() == 42.0
    assert kernels.silu_and_mul(x).item() == 42.0


@pytest.mark.parametrize(("dtype", "expected"), [(torch.float32, "fp32"), (torch.bfloat16, "bf16")])
def test_experts_write_what_they_read(dtype: torch.dtype, expected: str) -> None:
    module = SimpleNamespace(invoke_fused_moe_kernel=lambda rows, weight, *, compute_type, topk: (compute_type, weight, topk))
    replace_experts(module, "fp32")
    found = module.invoke_fused_moe_kernel(torch.ones(1, dtype=dtype), 7, compute_type="bf16", topk=8)
    assert found == (expected, 7, 8)
