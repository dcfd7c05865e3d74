"""Prompts as token ids: the held-out ones for the real target, seeded random ones for random targets."""

from __future__ import annotations

import json
import random
from pathlib import Path

from tests.gpu.client import Prompt


def held_out(store: Path, *sets: str) -> list[Prompt]:
    """The named sets of ``prompts.json`` (code, chat, long, conversation), one after another.

    Raises:
        OSError: the file is missing.
        KeyError: there is no such set.
    """
    data = json.loads((store / "prompts.json").read_text(encoding="utf-8"))
    return [tuple(row) for name in sets for row in data[name]]


def of_length(prompts: list[Prompt], tokens: int) -> list[Prompt]:
    """Those nearest to ``tokens`` tokens: no shorter than 90 % of it."""
    return [prompt for prompt in prompts if len(prompt) >= 0.9 * tokens]


def random_prompts(count: int, vocabulary: int, *, seed: int, shortest: int = 8, longest: int = 40) -> list[Prompt]:
    """Prompts of random tokens; the first 100 ids are left out because special tokens stand there."""
    source = random.Random(seed)
    return [tuple(source.randrange(100, vocabulary) for _ in range(source.randint(shortest, longest))) for _ in range(count)]
