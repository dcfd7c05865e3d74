"""What a whole command line asks for, as changes to be proven: for starts, restarts and roll-backs, which name no setting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..effective import UNGIVEN
from ..evidence.command import FlagReading, find_engine, flag_value
from ..evidence.drift_flags import other_flags
from ..evidence.reading import Reading
from ..evidence.server import Dialect
from ..knobs import KNOBS, PLAIN, Knob, KnobError, find_knob
from ..plan import KnobChange
from ..proof import proof_sources, proof_words
from ..session import HostSession

DRAFTING = ("draft_window", "layers_window", "tree_budget", "tree_topk", "block_size", "drafter")
"""Settings that mean something only when drafts are made."""
TREE = ("tree_budget", "tree_topk")


def asked_changes(command: Sequence[str], before: Sequence[str], dialect: Dialect) -> tuple[KnobChange, ...]:
    """Every setting that ``command`` gives, or that ``before`` gave and ``command`` does not, with the value to be proven; and
    every other flag that they give differently."""
    found = []
    for name, knob in KNOBS.items():
        if not _counts(knob, command):
            continue
        now, old = flag_value(command, knob), flag_value(before, knob)
        if not now.given and not old.given:
            continue
        sources = proof_sources(knob, dialect)
        if not sources:
            continue
        wanted, known = (flag.value if flag.given else UNGIVEN.get(name) for flag in (now, old))
        found.append(KnobChange(name, known, wanted, sources, proof_words(knob, sources)))
    return (*found, *_other_flags(command, before, dialect))


def _counts(knob: Knob, command: Sequence[str]) -> bool:
    """Whether the setting means anything under the algorithm that ``command`` asks for."""
    algorithm = flag_value(command, KNOBS["algorithm"]).value or PLAIN
    drafting = knob.name in DRAFTING and algorithm == PLAIN
    return bool(knob.flags) and not drafting and not (knob.name in TREE and algorithm != "DDTREE")


def _other_flags(command: Sequence[str], before: Sequence[str], dialect: Dialect) -> Iterator[KnobChange]:
    """Flags that are no settings of the catalogue: those that stay are not worth proving, those that do not are as much a change
    as a setting is."""
    for flag in other_flags(command, before):
        try:
            knob = find_knob(flag.name)
        except KnobError:
            continue
        now, old = flag_value(command, knob), flag_value(before, knob)
        # Of a flag with several words the first alone would be compared.
        whole = _whole(flag.unit, now) and _whole(flag.process, old)
        readable = whole and not (now.problem or old.problem or knob.secret)
        if readable and (now.given, now.value) != (old.given, old.value):
            sources = proof_sources(knob, dialect)
            yield KnobChange(knob.name, old.value, now.value if now.given else None, sources, proof_words(knob, sources))


def _whole(words: Reading, value: FlagReading) -> bool:
    return words.value is True or words.text == value.text


def unproven(command: Sequence[str], before: Sequence[str], changes: Sequence[KnobChange]) -> tuple[str, ...]:
    """What the two command lines give differently beside ``changes``, in words: it is carried out, and nothing proves it."""
    named = {change.knob for change in changes}
    words = [flag.flag for flag in other_flags(command, before) if flag.name not in named]
    for name, knob in KNOBS.items():
        now, old = flag_value(command, knob), flag_value(before, knob)
        if name not in named and _counts(knob, command) and (now.given, now.text) != (old.given, old.text):
            words.append(knob.flags[0])
    if _around(command) != _around(before):
        words.append("words beside the engine's own flags")
    return tuple(words)


def _around(command: Sequence[str]) -> object:
    """Everything but the engine's own arguments."""
    engine = find_engine(command)
    return tuple(command) if engine is None else (engine.outer, engine.argv[: engine.start], engine.argv[engine.end :])


def dialect_of(session: HostSession) -> Dialect:
    """Which engine this is; before its first start, the one that the host is for."""
    state = session.watcher.state
    if state.server is not None:
        return state.server.value.dialect
    return Dialect.EMBEDDED if state.embedded else Dialect.UNKNOWN
