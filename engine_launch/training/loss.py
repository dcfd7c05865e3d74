"""Cross-entropy through the target's frozen output head, without ever holding all logits."""

from __future__ import annotations

import torch
from torch import Tensor

CHUNK_ROWS = 8192


class _FrozenHeadCrossEntropy(torch.autograd.Function):
    """Weighted cross-entropy whose gradient to the hidden states is made in the forward pass, chunk by chunk."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx, hidden: Tensor, head: Tensor, labels: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        loss = torch.zeros((), device=hidden.device)
        gradient = torch.empty_like(hidden)
        correct = torch.empty_like(labels, dtype=torch.bool)
        for i in range(0, len(hidden), CHUNK_ROWS):
            rows = slice(i, i + CHUNK_ROWS)
            logits = hidden[rows] @ head.t()
            correct[rows] = logits.argmax(-1) == labels[rows]
            probs = torch.log_softmax(logits.float(), dim=-1)
            loss -= (probs.gather(1, labels[rows, None])[:, 0] * weights[rows]).sum()
            probs.exp_()
            probs.scatter_add_(1, labels[rows, None], probs.new_full((1, 1), -1.0).expand(len(probs), 1))
            gradient[rows] = probs.mul_(weights[rows, None]).to(head.dtype) @ head
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(correct)
        return loss, correct

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, loss_gradient: Tensor, _: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return gradient * loss_gradient.to(gradient.dtype), None, None, None


def head_cross_entropy(hidden: Tensor, head: Tensor, labels: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """``sum(weights * CE)`` of ``hidden [R, H]`` through ``head [V, H]`` (frozen), and which rows' argmax is right.

    The caller normalises the weights; they should sum to 1 so that bf16 gradients keep their range.
    """
    loss, correct = _FrozenHeadCrossEntropy.apply(hidden, head, labels, weights)  # type: ignore[no-untyped-call]
    return loss, correct


def slot_weights(block: int, gamma: float, device: torch.device) -> Tensor:
    """``exp(-(k - 1) / gamma)`` for slots ``k = 1..block-1`` (DFlash, arXiv 2602.06036)."""
    return torch.exp(-torch.arange(block - 1, device=device) / gamma)
