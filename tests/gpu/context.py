"""What a part is given and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.gpu.client import Client
from tests.gpu.records import Check, Json
from tests.gpu.servers import Server


@dataclass(frozen=True)
class Context:
    """A part's surroundings."""

    store: Path
    """What ``stage.sh`` unpacked: target, drafter, prompts."""
    servers: Mapping[str, Server]
    scale: float = 1.0
    """Share of the full amount of work: below 1 for trying a part out."""
    out: Path = Path()
    """Where a part may leave files beside its result."""
    devices: tuple[int, ...] = (0,)
    """GPUs that may be used: a server of one rank has the first, those that are spread have all."""

    @property
    def gpus(self) -> int:
        """How many GPUs the servers which are spread have."""
        return len(self.devices)

    def client(self, name: str) -> Client:
        return self.servers[name].client

    def share_of(self, count: int, least: int = 1) -> int:
        """``count``, scaled."""
        return max(least, round(count * self.scale))


@dataclass(frozen=True)
class Findings:
    checks: list[Check]
    data: dict[str, Json]


@dataclass(frozen=True)
class Part:
    """One part: the servers it needs and what it does with them."""

    name: str
    about: str
    servers: tuple[str, ...]
    run: Callable[[Context], Findings]
    kind: str = "one GPU"
    timed: bool = False
    """It measures speed: nothing else of these checks may run beside it."""
    optional: tuple[str, ...] = ()
    """Servers that it can do without, when they do not start."""
