"""How much memory a request's draft keys and values take: it depends on the engine, and on which pool SGLang keeps them in.

The embedded engine keeps what its windows let the drafter see. SGLang's own pool has a row in every layer for each token of the
target's pool, whatever the windows are. DDTREE's ring has rows for the compact draft cache of the start and one block.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from engine_launch.spec.checks import EngineKind
from engine_launch.spec.draft_pool import ring_rows
from engine_launch.spec.drafter_config import DrafterConfig
from engine_launch.spec.kv import draft_kv_bytes

from ..evidence.command import flag_value
from ..evidence.engine_choice import asked_engine
from ..evidence.server import Dialect
from ..knobs import CONFIG, Value, find_knob
from ..state import HostState

POOL_FLAG = "--speculative-ddtree-draft-pool"
DDTREE = "DDTREE"


class DraftPool(Enum):
    """How an engine keeps the drafter's keys and values."""

    WINDOWS = "as its windows bound it"
    """The embedded engine's."""
    STOCK = "a row for every token"
    RING = "a ring as long as the compact draft cache"
    UNKNOWN = "not known"


@dataclass(frozen=True)
class DraftSettings:
    """What decides about the memory of one request."""

    pool: DraftPool
    layers_window: Value | None
    draft_window: Value | None
    """For a ring that of the start: a compact draft cache that is changed while the engine runs leaves the ring as it is."""
    block: int


def engine_of(state: HostState, command: tuple[str, ...]) -> EngineKind | None:
    """The engine that ``command`` starts on this host; AUTO = the launcher chooses there, and has not been seen to.
    ``None`` = no engine is named."""
    asked = asked_engine(command)
    if asked is not EngineKind.AUTO:
        return asked
    dialect = state.server.value.dialect if state.server is not None else Dialect.UNKNOWN
    if state.embedded or dialect is Dialect.EMBEDDED:
        return EngineKind.EMBEDDED
    return EngineKind.AUTO if dialect is Dialect.UNKNOWN else EngineKind.SGLANG


def started_command(state: HostState) -> tuple[str, ...]:
    """The command that the running engine was started with, as far as it is known; empty when none names an engine."""
    config = state.config.value if state.config is not None else None
    known = (
        state.process.value.argv if state.process is not None else (),
        (config.loaded or ()) if config is not None else (),
        config.command if config is not None else (),
    )
    return next((command for command in known if asked_engine(command) is not None), ())


def pool_of(state: HostState, command: tuple[str, ...], algorithm: Value | None) -> DraftPool:
    """Where an engine that is started with ``command`` keeps the drafter's keys and values."""
    engine = engine_of(state, command)
    if engine is EngineKind.EMBEDDED:
        return DraftPool.WINDOWS
    if engine is not EngineKind.SGLANG:
        return DraftPool.UNKNOWN
    ring = algorithm == DDTREE and flag_value(command, find_knob(f"flag:{POOL_FLAG}")).value == "ring"
    return DraftPool.RING if ring else DraftPool.STOCK


def draft_bytes(drafter: DrafterConfig, context: int, settings: DraftSettings, element: int) -> int | None:
    """Bytes of one request's draft keys and values at ``context`` tokens, ``element`` bytes each; ``None`` = not known."""
    window = settings.draft_window if isinstance(settings.draft_window, int) else 0
    if settings.pool is DraftPool.WINDOWS:
        trained, layers = drafter.sliding_window or 0, settings.layers_window
        return draft_kv_bytes(
            drafter,
            context,
            layers_window=trained if layers in (None, CONFIG) else layers if isinstance(layers, int) else 0,
            draft_window=window,
            dtype_bytes=element,
        )
    per_row = drafter.num_layers * drafter.kv_bytes_per_token_and_layer(element)
    if settings.pool is DraftPool.STOCK:
        return context * per_row
    # Without a compact draft cache there is no ring: such a start is refused.
    return ring_rows(window, settings.block) * per_row if settings.pool is DraftPool.RING and window > 0 else None


def beyond_window(drafter: DrafterConfig, context: int, window: int, element: int) -> int:
    """Bytes of one request's draft keys and values before the compact draft cache, in all layers, which SGLang's pool keeps."""
    return max(0, context - window) * drafter.num_layers * drafter.kv_bytes_per_token_and_layer(element)
