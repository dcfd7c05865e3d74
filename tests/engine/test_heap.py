"""Freed memory goes back to the system when it is asked for."""

from __future__ import annotations

from pathlib import Path

from engine_launch.embedded import heap
from engine_launch.embedded.api import Algorithm
from engine_launch.embedded.target import TargetModel
from tests.engine.models import tiny_engine, tiny_settings

PAGE = 4096


def resident() -> int:
    """Bytes of this process that are in memory (proc(5))."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE


def fragmented(pieces: int = 1500, size: int = 100_000) -> list[bytearray]:
    """Allocate many pieces and free all but every hundredth: those that live on keep the heap from shrinking by itself."""
    held = [bytearray(b"x") * size for _ in range(pieces)]
    return held[::100]


def test_freed_pieces_between_living_ones_are_given_back() -> None:
    living = fragmented()
    before = resident()
    heap.trim()
    assert before - resident() > 50e6
    assert len(living) == 15


def test_a_flushed_cache_gives_its_memory_back(target: TargetModel) -> None:
    engine = tiny_engine(target, None, tiny_settings(Algorithm.PLAIN))
    living = fragmented()
    before = resident()
    try:
        assert engine.flush_cache()
        assert before - resident() > 50e6
    finally:
        engine.close()
    assert len(living) == 15
