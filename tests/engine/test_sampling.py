"""The ends of the sampler's parameters: whatever a client may ask for gives a token that can occur."""

from __future__ import annotations

import pytest
import torch

from engine_launch.embedded.api import SamplingParams
from engine_launch.embedded.sampling import Sampler

LOGITS = torch.tensor([-3.0, 25.0, 24.0, -60.0])


@pytest.mark.parametrize("temperature", [0.0, 5e-324, 1e-308, 1e-40, 9e-7])
def test_temperature_too_small_to_divide_by_is_greedy(temperature: float) -> None:
    sampler = Sampler(SamplingParams(temperature=temperature), 0)
    assert sampler.greedy
    assert sampler.choose(LOGITS) == 1


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1e-6),
        SamplingParams(temperature=1e299),
        SamplingParams(top_p=5e-324),
        SamplingParams(min_p=1.0),
        SamplingParams(top_k=1 << 62),
        SamplingParams(temperature=1e299, top_k=2, top_p=1e-9, min_p=1.0),
    ],
)
def test_extreme_parameters_give_a_token_of_the_vocabulary(params: SamplingParams) -> None:
    sampler = Sampler(params, 7)
    assert all(0 <= sampler.choose(LOGITS) < len(LOGITS) for _ in range(20))


@pytest.mark.parametrize("seed", [0, (1 << 63) - 1, (1 << 63) + 6])
def test_every_seed_that_the_server_lets_through_is_one(seed: int) -> None:
    """A call with several copies counts its seed up, so the largest ones come from beyond what a client may name."""
    assert 0 <= Sampler(SamplingParams(seed=seed), 0).choose(LOGITS) < len(LOGITS)
