"""What the screens ask of a host. The real one stands on a host session; tests stand one on recorded snapshots."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from .series import Mark, Point

if TYPE_CHECKING:
    from ..apply.records import ApplyResult, StageEvent
    from ..evidence.journal import LogLine
    from ..hosts.transport import CommandRecord, Link
    from ..knobs import Value
    from ..load.client import OnChunk, OnDone
    from ..load.records import RequestRecord
    from ..load.request import PromptRequest
    from ..plan import Mode, Plan
    from ..state import HostState
    from .tree import VerifyPicture


class LinkError(Exception):
    """Something that was asked of the host did not work; the message is one sentence for the screen."""

    def __init__(self, sentence: str, *, again: bool = False) -> None:
        super().__init__(sentence)
        self.again = again
        """Whether the same may work in a while without anybody doing anything about it."""


@dataclass(frozen=True)
class KeyQuestion:
    """A host key that nobody has accepted yet."""

    hop: str
    """The host that shows it, in words: ``gpu-a, reached through bastion,``."""
    algorithm: str
    fingerprint: str
    """``SHA256:…``, as ssh shows it."""
    file: str
    """The known_hosts file to which it is added."""


class UnknownHostKey(LinkError):
    """The user has to say whether the host's key is the right one."""

    def __init__(self, sentence: str, question: KeyQuestion, trust: Callable[[], Awaitable[None]]) -> None:
        """``trust`` adds the key to the file; it raises :class:`LinkError` when that cannot be written."""
        super().__init__(sentence)
        self.question = question
        self.trust = trust


class ChooseUnit(LinkError):
    """The host has several units that serve a model; the user has to say which one is meant."""

    def __init__(self, sentence: str, units: tuple[str, ...]) -> None:
        super().__init__(sentence)
        self.units = units


@dataclass(frozen=True)
class Past:
    """What history knows of the time before the console was opened."""

    decode: Sequence[Point] = ()
    commit: Sequence[Point] = ()
    marks: tuple[Mark, ...] = ()
    baseline: float | None = None
    """Plain decoding on this host in tok/s, from a start without speculation."""


class Control(Enum):
    """What can be asked of the service without a plan."""

    START = "start"
    RESTART = "restart"
    STOP = "stop"
    RESUME = "resume"
    """Go on with an operation that an earlier console left unfinished."""


@dataclass(frozen=True)
class ApplyChoices:
    """How an apply goes about it."""

    rollback_on_failure: bool = False
    drain: bool = False


OnStage = Callable[["StageEvent"], None]


class HostLink(Protocol):
    """One host's service, seen from the screens. Methods raise :class:`LinkError` with a sentence to show."""

    @property
    def read_only(self) -> bool:
        """Nothing may be changed on the host."""

    @property
    def connection(self) -> Link | None:
        """The connection to the host as it is just now; ``None`` for this machine, which needs none."""

    def commands(self) -> tuple[CommandRecord, ...]:
        """What was run on the host, oldest first, secrets masked."""

    async def reconnect(self) -> None:
        """Try the connection now, without waiting for the next try, and also after a refusal."""

    def states(self) -> AsyncIterator[HostState]:
        """Snapshots as they come, until cancelled; a slow reader gets the newest only."""

    async def past(self, seconds: float) -> Past:
        """Samples and marks of the last ``seconds`` before now."""

    def follow(self, *, this_start: bool) -> AsyncIterator[tuple[LogLine, ...]]:
        """Log lines in batches: what is stored first, then as they come."""

    async def plan(
        self,
        state: HostState,
        settings: Mapping[str, Value],
        mode: Mode,
        *,
        persist: bool = False,
        commit_confirm: bool = False,
    ) -> Plan:
        """What applying these settings would do; changes nothing.

        Args:
            persist: write a hot change down too.
            commit_confirm: have the host put the old configuration back by itself unless the new one is confirmed in time.
        """

    async def plan_drop_in(self, *, release: bool) -> Plan:
        """What carrying the console's drop-in over to a unit that has changed would do, or (``release``) removing it."""

    async def plan_roll_back(self) -> Plan:
        """What undoing an operation that was cut off would do; without one, going back to the last confirmed configuration."""

    async def apply(self, plan: Plan, choices: ApplyChoices, on_stage: OnStage) -> ApplyResult:
        """Carry the plan out. Cancelling leaves the operation's journal behind."""

    async def roll_back(self, plan: Plan, choices: ApplyChoices, on_stage: OnStage) -> ApplyResult:
        """Carry a plan of :meth:`plan_roll_back` out, as :meth:`apply` does."""

    async def control(self, control: Control, on_stage: OnStage) -> ApplyResult:
        """Start, restart or stop, or go on with what was cut off; confirmed like an apply."""

    async def pending(self) -> str:
        """An operation that an earlier console left unfinished, in a sentence; empty when there is none."""

    async def send(self, requests: Sequence[PromptRequest], on_chunk: OnChunk, on_done: OnDone) -> tuple[RequestRecord, ...]:
        """Send prompts at once; cancelling closes them, which frees their slots."""

    async def verifies(self, limit: int) -> tuple[VerifyPicture, ...]:
        """The newest recorded verifies, oldest first; empty when the engine records none."""

    async def save_profile(self, name: str, settings: Mapping[str, Value]) -> None:
        """Keep settings under a name in the configuration file."""

    async def profiles(self) -> Mapping[str, Mapping[str, Value]]:
        """All profiles by name."""

    async def close(self) -> None: ...
