"""Modes side by side: every prompt is answered in every mode before the next, so that other load meets all alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from engine_launch.embedded.api import Algorithm, SamplingParams
from tests.benchmarks.engines import Answer, Bench, ask_together

LOOP_LENGTH, LOOP_TIMES = 12, 4
"""An answer loops when so many tokens in a row come up so often: small greedy models do, and that flatters commit lengths."""


@dataclass(frozen=True)
class Mode:
    """One way to decode."""

    algorithm: Algorithm
    budget: int = 0
    """Of a tree; 0 is automatic."""

    @property
    def name(self) -> str:
        match self.algorithm:
            case Algorithm.PLAIN:
                return "plain"
            case Algorithm.DFLASH:
                return "chain"
            case Algorithm.DDTREE:
                return f"tree {self.budget or 'auto'}"


PLAIN, CHAIN, AUTO = Mode(Algorithm.PLAIN), Mode(Algorithm.DFLASH), Mode(Algorithm.DDTREE)


@dataclass(frozen=True)
class Sample:
    """One prompt (or several at once) in one mode."""

    tokens: int
    """Decoded tokens; the first of each answer belongs to prefill."""
    seconds: float
    """Of decoding: of one request its own, of several until the last has ended."""
    verifies: int
    nodes: int
    parts: float
    """Seconds of verify, draft and append."""
    loops: bool


def loops(ids: Sequence[int]) -> bool:
    """Whether an answer repeats itself."""
    grams = Counter(tuple(ids[at : at + LOOP_LENGTH]) for at in range(len(ids) - LOOP_LENGTH + 1))
    return bool(grams) and max(grams.values()) >= LOOP_TIMES


def sample(loaded: Bench, mode: Mode, prompts: Sequence[tuple[int, ...]], tokens: int) -> Sample:
    """Answer ``prompts`` together, greedily."""
    engine = loaded.engine(mode.algorithm)
    if mode.algorithm is Algorithm.DDTREE:
        assert engine.change("speculative_ddtree_budget", mode.budget)
    before = engine.stats().round_seconds
    answers: list[Answer] = ask_together(engine, prompts, SamplingParams(max_new_tokens=tokens, temperature=0.0))
    after = engine.stats().round_seconds
    stats = [answer.stats for answer in answers]
    return Sample(
        tokens=sum(one.completion_tokens - 1 for one in stats),
        seconds=max(one.decode_seconds for one in stats),
        verifies=sum(one.spec_verify_ct for one in stats),
        nodes=sum(one.spec_num_proposed_drafts for one in stats),
        parts=sum(after[part] - before[part] for part in ("verify", "draft", "append")),
        loops=any(loops(answer.ids) for answer in answers),
    )


def interleaved(
    loaded: Bench, modes: Sequence[Mode], groups: Sequence[Sequence[tuple[int, ...]]], tokens: int
) -> dict[Mode, list[Sample]]:
    """Samples by mode, in the order of ``groups`` (prompts that are answered at the same time)."""
    for mode in modes:
        sample(loaded, mode, groups[0][:1], 8)
    found: dict[Mode, list[Sample]] = {mode: [] for mode in modes}
    for group in groups:
        for mode in modes:
            found[mode].append(sample(loaded, mode, group, tokens))
    return found


def tok_s(samples: Sequence[Sample]) -> float:
    """All tokens ÷ all seconds."""
    return sum(one.tokens for one in samples) / sum(one.seconds for one in samples)


def commit_length(samples: Sequence[Sample]) -> float:
    """Tokens per verify; 1 where nothing was verified."""
    verifies = sum(one.verifies for one in samples)
    return sum(one.tokens for one in samples) / verifies if verifies else 1.0


def nodes(samples: Sequence[Sample]) -> float:
    """Drafts per verify."""
    verifies = sum(one.verifies for one in samples)
    return sum(one.nodes for one in samples) / verifies if verifies else 0.0


def of_limit(samples: Sequence[Sample]) -> float:
    """Speed ÷ what it would be if rounds were nothing but draft, verify and append."""
    return sum(one.parts for one in samples) / sum(one.seconds for one in samples)


def ratio(samples: Sequence[Sample], base: Sequence[Sample]) -> float:
    """Speed of one mode ÷ that of another on the same prompts: the median of the prompts' own ratios."""
    ratios = sorted((one.tokens / one.seconds) / (other.tokens / other.seconds) for one, other in zip(samples, base, strict=True))
    middle = len(ratios) // 2
    return ratios[middle] if len(ratios) % 2 else (ratios[middle - 1] + ratios[middle]) / 2
