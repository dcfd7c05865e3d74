"""What the drafter is trained for: cross-entropy through the target's frozen head, without ever holding all logits.

An :class:`Objective` says how much each slot of a block counts, and how far the label is the text's token or the target's whole
distribution at that place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

CHUNK_ROWS = 8192

Weigh = Callable[[Tensor, Tensor], Tensor]
"""From the draft's probabilities of the labels and which slots are usable, both ``[N, slots]``, to weights of that size."""


@dataclass(frozen=True)
class Objective:
    """How the slots of a block are weighted and what they are held against.

    The weights are fixed, ``exp(-(k - 1) / gamma)`` for slot ``k = 1, 2, …`` (DFlash, arXiv 2602.06036), or with ``dpace``
    follow the draft's own confidence (:func:`dpace_weights`). ``soft`` is the share of the loss that is cross-entropy against
    the target's own distribution (forward KL, up to that distribution's entropy, which does not depend on the drafter); the rest
    is cross-entropy against the text's token.
    """

    gamma: float = 4.0
    dpace: float | None = None
    soft: float = 0.0

    def __post_init__(self) -> None:
        """Raises: ValueError: a number outside its range."""
        if self.gamma <= 0:
            raise ValueError(f"gamma must be greater than 0, not {self.gamma}")
        if self.dpace is not None and not 0 < self.dpace <= 1:
            raise ValueError(f"the smoothing of D-PACE's weights must be greater than 0 and at most 1, not {self.dpace}")
        if not 0 <= self.soft <= 1:
            raise ValueError(f"the share of the target's distribution must be from 0 to 1, not {self.soft}")

    def weigh(self, probabilities: Tensor, usable: Tensor) -> Tensor:
        """The weights of slots whose labels the draft gives these ``probabilities``; 0 where a slot is not ``usable``."""
        if self.dpace is not None:
            return dpace_weights(probabilities, usable, self.dpace)
        return slot_weights(usable.shape[-1] + 1, self.gamma, usable.device) * usable


class _FrozenHeadLoss(torch.autograd.Function):
    """The loss, with its gradient to the hidden states made in the forward pass, some blocks at a time."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx, hidden: Tensor, head: Tensor, labels: Tensor, usable: Tensor, weigh: Weigh,
        teacher: Tensor | None, soft: float,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        slots = labels.shape[1]
        loss = torch.zeros((), device=hidden.device)
        mass = torch.zeros((), device=hidden.device)
        gradient = torch.empty_like(hidden)
        correct = torch.empty_like(labels, dtype=torch.bool)
        at_once = max(1, CHUNK_ROWS // slots)
        for i in range(0, len(hidden), at_once):
            blocks = slice(i, i + at_once)
            wanted = labels[blocks].reshape(-1, 1)
            logits = hidden[blocks].flatten(0, 1) @ head.t()
            correct[blocks] = (logits.argmax(-1, keepdim=True) == wanted).view(-1, slots)
            log_probs = torch.log_softmax(logits.float(), dim=-1)
            of_label = log_probs.gather(1, wanted)
            weights = weigh(of_label.exp().view(-1, slots), usable[blocks]).reshape(-1, 1)
            mass += weights.sum()
            loss -= (1 - soft) * (of_label * weights).sum()
            if teacher is None:
                slope = log_probs.exp_()
            else:
                aim = torch.softmax((teacher[blocks].flatten(0, 1) @ head.t()).float(), dim=-1)
                loss -= soft * ((aim * log_probs).sum(-1, keepdim=True) * weights).sum()
                slope = log_probs.exp_().sub_(aim.mul_(soft))
            slope.scatter_add_(1, wanted, slope.new_full((1, 1), soft - 1).expand(len(slope), 1))
            gradient[blocks] = (slope.mul_(weights).to(head.dtype) @ head).view(-1, slots, head.shape[1])
        mass.clamp_(min=1e-6)
        ctx.save_for_backward(gradient.div_(mass))
        ctx.mark_non_differentiable(correct)
        return loss / mass, correct

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, loss_gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return gradient * loss_gradient.to(gradient.dtype), None, None, None, None, None, None


def head_loss(
    hidden: Tensor, head: Tensor, labels: Tensor, usable: Tensor, objective: Objective, teacher: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The weighted mean loss of blocks' ``hidden [N, slots, H]`` through ``head [V, H]`` (frozen), and which slots' argmax is
    ``labels [N, slots]``.

    ``usable [N, slots]`` marks the slots that count: the first ones of each block, up to any number. ``teacher [N, slots, H]``
    are the target's final hidden states where it predicts the same tokens, wanted when the objective has a soft share.

    Raises:
        ValueError: the teacher is missing.
    """
    if objective.soft and teacher is None:
        raise ValueError("an objective with a soft share needs the target's final hidden states")
    aim = teacher if objective.soft else None
    loss, correct = _FrozenHeadLoss.apply(  # type: ignore[no-untyped-call]
        hidden, head, labels, usable, objective.weigh, aim, objective.soft
    )
    return loss, correct


def slot_weights(block: int, gamma: float, device: torch.device) -> Tensor:
    """``exp(-(k - 1) / gamma)`` for slots ``k = 1..block-1`` (DFlash, arXiv 2602.06036)."""
    return torch.exp(-torch.arange(block - 1, device=device) / gamma)


def dpace_weights(probabilities: Tensor, usable: Tensor, alpha: float) -> Tensor:
    """D-PACE's weights (arXiv 2605.18810): what a slot's log-probability adds to the expected number of accepted drafts.

    With the draft's probability of the label smoothed, ``q = alpha + (1 - alpha) p``, slot ``k`` weighs ``sum over m >= k of
    q_1 q_2 … q_m``: the chance that the slot is reached and right, times what may still be accepted from there on. So weight
    moves to later slots as the earlier ones get surer. Nothing is differentiated through it.
    """
    reached = ((alpha + (1 - alpha) * probabilities) * usable).cumprod(-1)
    return reached.flip(-1).cumsum(-1).flip(-1)
