"""What workers tell the screens. Workers post these; only message handlers change widgets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.message import Message

if TYPE_CHECKING:
    from ..apply.records import ApplyResult, StageEvent
    from ..evidence.journal import LogLine
    from ..load.records import Chunk, RequestRecord
    from ..plan import Plan
    from ..state import HostState
    from .course import Course
    from .link import Past
    from .operations import Operations
    from .watching import Watching


class HostMessage(Message):
    """Something that one host's watcher says. ``source`` tells which: a late one, of a host that was left, is dropped."""

    def __init__(self, source: Watching | None) -> None:
        super().__init__()
        self.source = source


class StateArrived(HostMessage):
    """A new snapshot of the host."""

    def __init__(self, state: HostState, source: Watching | None = None) -> None:
        super().__init__(source)
        self.state = state


class LinkOpened(HostMessage):
    """The host answers; ``unfinished`` names an operation that an earlier console left, or is empty."""

    def __init__(self, unfinished: str, source: Watching | None = None) -> None:
        super().__init__(source)
        self.unfinished = unfinished


class PastArrived(HostMessage):
    """What history knows of the time before."""

    def __init__(self, past: Past, source: Watching | None = None) -> None:
        super().__init__(source)
        self.past = past


class BaselineArrived(HostMessage):
    """Plain decoding on this host in tok/s, as far as it has been measured."""

    def __init__(self, tok_s: float | None, source: Watching | None = None) -> None:
        super().__init__(source)
        self.tok_s = tok_s


class LinkFailed(HostMessage):
    """The host cannot be watched; one sentence says why."""

    def __init__(self, sentence: str, next_try: float | None = None, source: Watching | None = None) -> None:
        """``next_try``: when it is tried again by itself (monotonic); ``None`` = it is not."""
        super().__init__(source)
        self.sentence = sentence
        self.next_try = next_try


class UnitWanted(HostMessage):
    """The host has several units, and the user has to say which one is meant."""

    def __init__(self, units: tuple[str, ...], source: Watching | None = None) -> None:
        super().__init__(source)
        self.units = units


class PlotLibraryLoaded(Message):
    """Plots can be drawn from now on."""


class PlanMade(Message):
    """What an apply would do."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan


class PlanFailed(Message):
    """No plan could be made; one sentence says why."""

    def __init__(self, sentence: str) -> None:
        super().__init__()
        self.sentence = sentence


class StageArrived(Message):
    """A stage of an operation began, went on or ended."""

    def __init__(self, operations: Operations, course: Course, event: StageEvent) -> None:
        super().__init__()
        self.operations = operations
        self.course = course
        self.event = event


class OperationEnded(Message):
    """An operation ended, with its result or with a sentence."""

    def __init__(self, operations: Operations, course: Course, result: ApplyResult | None, sentence: str = "") -> None:
        super().__init__()
        self.operations = operations
        self.course = course
        self.result = result
        self.sentence = sentence


class LogArrived(Message):
    """Lines of the log, oldest first."""

    def __init__(self, generation: int, lines: tuple[LogLine, ...]) -> None:
        super().__init__()
        self.generation = generation
        self.lines = lines


class ChunkArrived(Message):
    """New text of one of the running prompts."""

    def __init__(self, run: int, chunk: Chunk) -> None:
        super().__init__()
        self.run = run
        self.chunk = chunk


class AnswerEnded(Message):
    """One of the running prompts ended."""

    def __init__(self, run: int, record: RequestRecord) -> None:
        super().__init__()
        self.run = run
        self.record = record


class PromptsEnded(Message):
    """All prompts of a run ended; ``sentence`` says why when they could not be sent."""

    def __init__(self, run: int, sentence: str = "") -> None:
        super().__init__()
        self.run = run
        self.sentence = sentence
