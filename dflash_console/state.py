"""What is known about one service at one moment: immutable snapshots that screens, drift and plans read.

Every value knows its source and its age. *Unknown* is a value of its own: not zero, not "off", not "mismatch".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from .evidence.rates import Rates as Rates
from .evidence.reading import UNREAD as UNREAD
from .evidence.reading import Known as Known
from .evidence.reading import Reading as Reading
from .hosts.service import ENDED as ENDED
from .hosts.service import RunState as RunState

if TYPE_CHECKING:
    # A snapshot in which these are still unknown is shown before their readers are imported.
    from engine_launch.spec.drafter_config import DrafterConfig

    from .evidence.engine_log import StartLog
    from .evidence.gpu import GpuRow
    from .evidence.gpu_holders import GpuHolder
    from .evidence.metrics import MetricsSample
    from .evidence.process import ProcessEvidence
    from .evidence.server import Loads, ServerInfo
    from .hosts.service import ServiceConfig, ServiceState
    from .hosts.stranger import Stranger

T = TypeVar("T")


@dataclass(frozen=True)
class Aged(Generic[T]):
    """A value with the moment it was read, by this machine's monotonic clock (for ages only, never for order on a host)."""

    value: T
    at: float

    def age(self, now: float) -> float:
        return max(0.0, now - self.at)


@dataclass(frozen=True)
class HostState:
    """A snapshot of one host's service. Each part is replaced when its source is read; a part that is ``None`` was never read."""

    host: str
    unit: str
    embedded: bool = False
    """The unit is this machine's and runs the embedded engine (a small model on this CPU)."""
    service: Aged[ServiceState] | None = None
    config: Aged[ServiceConfig] | None = None
    process: Aged[ProcessEvidence] | None = None
    server: Aged[ServerInfo] | None = None
    report_after: int = 0
    """Lines of this start's log that had been read when ``server`` was asked: what they tell, it must know."""
    loads: Aged[Loads] | None = None
    metrics: Aged[MetricsSample] | None = None
    rates: Rates = field(default_factory=Rates)
    log: Aged[StartLog] | None = None
    """What the log of the present start has said so far."""
    drafter: Aged[DrafterConfig] | None = None
    gpus: Aged[tuple[GpuRow, ...]] | None = None
    gpu_holders: Aged[tuple[GpuHolder, ...]] | None = None
    """The processes that hold GPU memory, once the engine has :attr:`been ready <been_ready>`: before, ranks come one by one."""
    ready: bool = False
    silent: bool = False
    """The engine left the newest question unanswered, and that was asked after its log had said that it was ready. One that was
    asked before says nothing of it."""
    stranger: Aged[Stranger] | None = None
    """Another program that listens where this unit's engine should; nothing of what it says is in this snapshot."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """Source → why it cannot be read right now (one sentence)."""
    revision: int = 0
    """Grows with every snapshot."""

    @property
    def said_ready(self) -> bool:
        """The engine runs, and said in its log that it is ready: if it does not answer then, it is no longer loading."""
        running = self.service is not None and self.service.value.state is RunState.RUNNING
        return running and self.log is not None and self.log.value.ready

    @property
    def been_ready(self) -> bool:
        """All of the engine is there, or was in this start: it answers, or said once that it was ready and hangs now."""
        return self.ready or self.said_ready

    @property
    def unread_config(self) -> str:
        """Why it is not known what the configuration asks for, in a sentence; empty when it is known, and when nobody has looked.

        A configuration that was read once and cannot be read any more is not known either: it may say anything by now.
        """
        if "config" in self.problems and "service" not in self.problems:
            return self.problems["config"]
        config = self.config.value if self.config is not None else None
        return config.problems[0] if config is not None and config.problems and not config.command else ""

    @property
    def all_problems(self) -> Mapping[str, str]:
        """:attr:`problems`, and what is wrong with a configuration that could be read."""
        config = self.config.value if self.config is not None else None
        if "config" in self.problems or config is None or not config.problems:
            return self.problems
        return {"config": config.problems[0], **self.problems}

    def newest(self) -> float | None:
        """When the newest part was read (monotonic)."""
        parts = (self.service, self.config, self.process, self.server, self.loads, self.metrics, self.log)
        times = [part.at for part in parts if part is not None]
        return max(times, default=None)
