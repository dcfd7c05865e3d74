"""A tiny fp32 target, three prompts, and the greedy answers that every way of decoding must repeat."""

from __future__ import annotations

import pytest
import torch

from engine_launch.embedded.target import TargetModel
from tests.engine.models import plain_answers, prompts, tiny_target

TOKENS = 48
"""Of each answer."""


@pytest.fixture(scope="module")
def target() -> TargetModel:
    return tiny_target(torch.float32)


@pytest.fixture(scope="module")
def texts() -> list[list[int]]:
    return prompts(3, 25)


@pytest.fixture(scope="module")
def answers(target: TargetModel, texts: list[list[int]]) -> list[list[int]]:
    return plain_answers(target, texts, TOKENS)
