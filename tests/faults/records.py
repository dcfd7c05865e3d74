"""What a fault is, and what came of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from dflash_console.apply import Verdict

if TYPE_CHECKING:
    from .console import Ended
    from .scene import Scene

BUDGET = 8
"""Of the engine before."""
WANTED = {"tree_budget": "16", "draft_window": "512"}
"""The change that every fault disturbs."""


class NotBegun(Enum):
    """The command ended before there was an operation: exit status 1 or 2, and a sentence on standard error."""

    NOT_BEGUN = "not begun"


NOT_BEGUN = NotBegun.NOT_BEGUN
Given = Verdict | NotBegun


class Where(Enum):
    """What is broken."""

    ENGINE = "The engine"
    MANAGER = "The service manager"
    FILES = "Files on the host"
    RIGHTS = "Rights on the host"
    JOURNAL = "The journal"
    LINK = "The link"
    CONSOLE = "The console"
    CLEAN = "Nothing"


class Old(Enum):
    """What became of the configuration from before, as the host's files and its service manager say."""

    IN_PLACE = "in place"
    """Files and loaded command are as they were."""
    RESTORED = "restored"
    """The console rolled back by itself, and the old command runs."""
    RESTORABLE = "restorable"
    """``ddtree-console rollback``, once the fault was over, brought the files back and the old command runs."""
    LOST = "lost"


class Engine(Enum):
    STAND_IN = "stand-in"
    """Starts in a tenth of a second and misbehaves when told (``STAND_IN_FAULTS``)."""
    EMBEDDED = "embedded"
    """The real one."""


@dataclass(frozen=True)
class Setup:
    """The host before anything is broken."""

    engine: Engine = Engine.STAND_IN
    faults: str = ""
    """Of the stand-in: ``BUDGET=FAULT`` pairs."""
    service: tuple[str, ...] = ()
    """Further lines of ``[Service]``."""
    unit: tuple[str, ...] = ()
    """Further lines of ``[Unit]``."""
    flags: tuple[str, ...] = ()
    """Further words of the engine's command."""
    folder: str = "/etc/systemd/system"
    """Where the unit file is."""
    install: bool = False
    """Enable the unit, so that it is started when the host boots."""
    wrapped: str = ""
    """A shell command with ``ENGINE`` in it, to start the engine through ``bash -c``."""
    user: str = "root"
    """Who logs in."""
    jump: bool = False
    """Reach the host through another one."""
    started: bool = True
    """Start the unit with the console first, so that its configuration is a confirmed one."""
    ready_timeout_s: float = 60.0


Run = Callable[["Scene"], Awaitable["Ended"]]


@dataclass(frozen=True)
class Fault:
    """One fault and what must come of it."""

    name: str
    where: Where
    story: str
    """One sentence for the table: what goes wrong."""
    expected: tuple[Given, ...]
    """Verdicts that are right; mostly one."""
    words: tuple[str, ...]
    """Each must stand in the reason (or on standard error, when it was not begun); ``a|b`` = one of them."""
    old: tuple[Old, ...]
    """What must have become of the old configuration; one that is lost never passes."""
    setup: Setup
    run: Run
    quick: bool = False
    """Also run by pytest."""


@dataclass(frozen=True)
class Outcome:
    """What came of one fault."""

    fault: Fault
    given: Given | None
    """``None`` when the harness itself failed, or the console printed no answer."""
    reason: str
    old: Old | None
    seconds: float
    """Of the command."""
    problems: tuple[str, ...] = ()
    """Why it failed; empty when it passed."""
    false_confirmed: bool = False

    @property
    def passed(self) -> bool:
        return not self.problems


@dataclass
class Registry:
    """All faults, in the order in which they were declared."""

    faults: dict[str, Fault] = field(default_factory=dict)

    def add(self, fault: Fault) -> None:
        assert fault.name not in self.faults, fault.name
        self.faults[fault.name] = fault


REGISTRY = Registry()


def fault(
    name: str,
    where: Where,
    story: str,
    expected: Given | Sequence[Given],
    *words: str,
    old: Old | Sequence[Old] = Old.RESTORABLE,
    setup: Setup | None = None,
    quick: bool = False,
) -> Callable[[Run], Run]:
    """Declare a fault: the function under it breaks something, runs the command that is judged, and returns how it ended."""

    def declare(run: Run) -> Run:
        REGISTRY.add(
            Fault(
                name,
                where,
                story,
                (expected,) if isinstance(expected, (Verdict, NotBegun)) else tuple(expected),
                words,
                (old,) if isinstance(old, Old) else tuple(old),
                setup or Setup(),
                run,
                quick,
            )
        )
        return run

    return declare
