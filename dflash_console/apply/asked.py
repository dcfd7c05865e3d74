"""What a whole command line asks for, as changes to be proven: for starts, restarts and roll-backs, which name no setting."""

from __future__ import annotations

from collections.abc import Sequence

from ..effective import UNGIVEN
from ..evidence.command import flag_value
from ..evidence.server import Dialect
from ..knobs import KNOBS, PLAIN, Value
from ..plan import KnobChange
from ..proof import proof_sources, proof_words
from ..session import HostSession

DRAFTING = ("draft_window", "layers_window", "tree_budget", "tree_topk", "block_size", "drafter")
"""Settings that mean something only when drafts are made."""
TREE = ("tree_budget", "tree_topk")


def asked_changes(command: Sequence[str], before: Sequence[str], dialect: Dialect) -> tuple[KnobChange, ...]:
    """Every setting that ``command`` gives, or that ``before`` gave and ``command`` does not, with the value to be proven."""
    algorithm = flag_value(command, KNOBS["algorithm"]).value or PLAIN
    found = []
    for name, knob in KNOBS.items():
        if not knob.flags or (name in DRAFTING and algorithm == PLAIN) or (name in TREE and algorithm != "DDTREE"):
            continue
        now, old = flag_value(command, knob), flag_value(before, knob)
        if not now.given and not old.given:
            continue
        sources = proof_sources(knob, dialect)
        if not sources:
            continue
        wanted: Value | None = now.value if now.given else UNGIVEN.get(name)
        found.append(KnobChange(name, old.value, wanted, sources, proof_words(knob, sources)))
    return tuple(found)


def dialect_of(session: HostSession) -> Dialect:
    """Which engine this is; before its first start, the one that the host is for."""
    state = session.watcher.state
    if state.server is not None:
        return state.server.value.dialect
    return Dialect.EMBEDDED if state.embedded else Dialect.UNKNOWN
