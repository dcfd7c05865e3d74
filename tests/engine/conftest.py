"""A tiny fp32 target, three prompts, and the greedy answers that every way of decoding must repeat; and a server over an engine
that recites."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from engine_launch.embedded.target import TargetModel
from tests.engine.models import plain_answers, prompts, tiny_target
from tests.engine.scripted import ScriptedEngine
from tests.engine.serving import Running, serving

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


@pytest.fixture(scope="module")
def flags() -> tuple[str, ...]:
    """What the server of a module is started with; a module that asks for more has a fixture of this name."""
    return ()


@pytest.fixture(scope="module")
def served(flags: tuple[str, ...]) -> Iterator[tuple[ScriptedEngine, Running]]:
    """One server for all tests of a module."""
    engine = ScriptedEngine()
    with serving(engine, *flags) as running:
        yield engine, running


@pytest.fixture
def engine(served: tuple[ScriptedEngine, Running]) -> ScriptedEngine:
    """The module's engine, as it was when it was new."""
    served[0].reset()
    return served[0]


@pytest.fixture
def server(engine: ScriptedEngine, served: tuple[ScriptedEngine, Running]) -> Running:
    return served[1]
