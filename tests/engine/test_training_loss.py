"""The chunked loss is the loss that one would write down with all logits at hand, gradient and all; D-PACE's weights are what the
paper says they are."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine_launch.training import loss as subject
from engine_launch.training.loss import Objective, dpace_weights, head_loss

BLOCKS, SLOTS, HIDDEN, VOCAB = 11, 3, 6, 30
OBJECTIVES = [
    Objective(),
    Objective(gamma=1.5),
    Objective(dpace=0.5),
    Objective(soft=1.0),
    Objective(soft=0.3),
    Objective(dpace=0.2, soft=0.6),
]


def usable_slots() -> Tensor:
    """Blocks of every length, none included."""
    return torch.arange(SLOTS) < (torch.arange(BLOCKS) % (SLOTS + 1))[:, None]


def plainly(hidden: Tensor, head: Tensor, labels: Tensor, usable: Tensor, objective: Objective, teacher: Tensor) -> Tensor:
    """The same loss from all logits, for autograd to differentiate."""
    log_probs = torch.log_softmax(hidden @ head.t(), -1)
    of_label = log_probs.gather(-1, labels[..., None])[..., 0]
    weights = objective.weigh(of_label.detach().exp(), usable)
    against_text = -of_label
    against_target = -(torch.softmax(teacher @ head.t(), -1) * log_probs).sum(-1)
    mixed = (1 - objective.soft) * against_text + objective.soft * against_target
    return (mixed * weights).sum() / weights.sum()


@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
@pytest.mark.parametrize("at_once", [1, 4, 8192], ids=lambda n: f"{n} rows at once")
def test_the_chunked_loss_and_its_gradient_are_those_of_all_logits_at_once(
    objective: Objective, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "CHUNK_ROWS", at_once)
    torch.manual_seed(0)
    head, teacher = torch.randn(VOCAB, HIDDEN), torch.randn(BLOCKS, SLOTS, HIDDEN)
    labels, usable = torch.randint(0, VOCAB, (BLOCKS, SLOTS)), usable_slots()
    hidden = torch.randn(BLOCKS, SLOTS, HIDDEN, requires_grad=True)
    twin = hidden.detach().clone().requires_grad_()
    loss, correct = head_loss(hidden, head, labels, usable, objective, teacher)
    (3 * loss).backward()  # type: ignore[no-untyped-call]
    expected = plainly(twin, head, labels, usable, objective, teacher)
    (3 * expected).backward()  # type: ignore[no-untyped-call]
    assert hidden.grad is not None
    assert twin.grad is not None
    assert torch.allclose(loss, expected, atol=1e-6)
    assert torch.allclose(hidden.grad, twin.grad, atol=1e-6)
    assert torch.equal(hidden.grad[~usable], torch.zeros_like(hidden.grad[~usable]))
    assert torch.equal(correct, (twin @ head.t()).argmax(-1) == labels)


def test_a_drafter_that_says_what_the_target_says_has_nothing_to_learn_from_its_distribution() -> None:
    torch.manual_seed(1)
    head = torch.randn(VOCAB, HIDDEN)
    hidden = torch.randn(BLOCKS, SLOTS, HIDDEN, requires_grad=True)
    labels, usable = torch.randint(0, VOCAB, (BLOCKS, SLOTS)), torch.ones(BLOCKS, SLOTS, dtype=torch.bool)
    loss, _ = head_loss(hidden, head, labels, usable, Objective(soft=1.0), hidden.detach().clone())
    loss.backward()  # type: ignore[no-untyped-call]
    assert hidden.grad is not None
    assert hidden.grad.abs().max() < 1e-6
    # What is left of the loss is the distribution's own entropy, with the slots' weights.
    log_probs = torch.log_softmax(hidden.detach() @ head.t(), -1)
    weights = Objective().weigh(torch.ones(BLOCKS, SLOTS), usable)
    assert loss.item() == pytest.approx(float((-(log_probs.exp() * log_probs).sum(-1) * weights).sum() / weights.sum()), abs=1e-5)


@settings(max_examples=60, deadline=None)
@given(
    probabilities=st.lists(st.floats(0, 1), min_size=1, max_size=7),
    alpha=st.floats(0.05, 1),
    usable=st.integers(0, 7),
)
def test_dpace_weighs_a_slot_by_what_its_log_probability_adds_to_the_accepted_length(
    probabilities: list[float], alpha: float, usable: int
) -> None:
    """By autograd: the slope of ``q_1 + q_1 q_2 + …`` over the usable slots in each ``log q``."""
    p = torch.tensor([probabilities], dtype=torch.float64)
    mask = torch.arange(p.shape[1])[None] < usable
    logs = torch.log(alpha + (1 - alpha) * p).requires_grad_()
    accepted = (logs.cumsum(-1).exp() * mask).sum()
    accepted.backward()  # type: ignore[no-untyped-call]
    assert logs.grad is not None
    assert torch.allclose(dpace_weights(p, mask, alpha), logs.grad)


def test_dpace_moves_weight_to_later_slots_as_the_first_get_surer() -> None:
    usable = torch.ones(1, 7, dtype=torch.bool)
    unsure, sure = (dpace_weights(torch.full((1, 7), p), usable, 0.5)[0] for p in (0.05, 0.95))
    assert bool((unsure.diff() < 0).all() and (sure.diff() < 0).all()), "an earlier slot always weighs more"
    assert sure[6] / sure[0] > 10 * unsure[6] / unsure[0]
    assert torch.allclose(dpace_weights(torch.rand(1, 7), usable, 1.0)[0], torch.arange(7, 0, -1.0))


def test_the_fixed_weights_fall_by_gamma() -> None:
    weights = Objective(gamma=2.0).weigh(torch.rand(2, 3), torch.tensor([[True] * 3, [True, False, False]]))
    assert torch.allclose(weights[0, 1:] / weights[0, :-1], torch.full((2,), float(torch.exp(torch.tensor(-0.5)))))
    assert weights[1].tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"gamma": 0.0}, "gamma must be greater than 0"),
        ({"dpace": 0.0}, "greater than 0 and at most 1, not 0.0"),
        ({"dpace": 1.5}, "at most 1"),
        ({"soft": 1.1}, "from 0 to 1, not 1.1"),
        ({"soft": float("nan")}, "from 0 to 1"),
    ],
)
def test_numbers_out_of_range_are_refused(wrong: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Objective(**wrong)


def test_a_soft_share_without_the_targets_states_is_refused() -> None:
    rows, labels = torch.randn(1, 3, 6), torch.zeros(1, 3, dtype=torch.long)
    with pytest.raises(ValueError, match="needs the target's final hidden states"):
        head_loss(rows, torch.randn(30, 6), labels, labels == 0, Objective(soft=0.5))


def test_plain_cross_entropy_is_what_pytorch_computes() -> None:
    torch.manual_seed(2)
    hidden, head, labels = torch.randn(5, 3, 6), torch.randn(30, 6), torch.randint(0, 30, (5, 3))
    loss, _ = head_loss(hidden, head, labels, torch.ones(5, 3, dtype=torch.bool), Objective(gamma=1e9))
    assert loss.item() == pytest.approx(F.cross_entropy((hidden @ head.t()).flatten(0, 1), labels.flatten()).item(), abs=1e-5)
