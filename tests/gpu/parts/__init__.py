"""All parts by name, in the order in which they are usually run."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tests.gpu.context import Part
from tests.gpu.parts.console import CONSOLE, PROMPTS
from tests.gpu.parts.equality import EQUALITY, SINGLE, SMOKE
from tests.gpu.parts.faults import FAULTS
from tests.gpu.parts.hot import HOT, REQUESTS
from tests.gpu.parts.memory import MEMORY
from tests.gpu.parts.mixed import MIXED
from tests.gpu.parts.parallel import PARALLEL, PARALLEL_MOE
from tests.gpu.parts.profile import PROFILE
from tests.gpu.parts.random_targets import COST, MOE
from tests.gpu.parts.rescored import RESCORED
from tests.gpu.parts.ring import POOL, RING_PART
from tests.gpu.parts.sampling import REFUSALS, TEMPERATURE
from tests.gpu.parts.speed import SPEED, SPLIT
from tests.gpu.parts.starting import STARTING
from tests.gpu.parts.suites import SUITES
from tests.gpu.parts.weights import WEIGHTS
from tests.gpu.parts.window import WINDOW

PARTS: Mapping[str, Part] = MappingProxyType(
    {
        part.name: part
        for part in (
            SMOKE, EQUALITY, SINGLE, FAULTS, HOT, REQUESTS, WEIGHTS, TEMPERATURE, REFUSALS, RESCORED,
            SUITES, STARTING, SPEED, SPLIT, PROFILE, WINDOW, RING_PART, POOL, MEMORY, MIXED, MOE, COST, CONSOLE,
            PROMPTS, PARALLEL, PARALLEL_MOE,
        )
    }
)  # fmt: skip
