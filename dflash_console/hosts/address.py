"""Where an engine listens and with which key, from its own command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..evidence.command import flag_value
from ..evidence.values import whole
from ..knobs import find_knob

DEFAULT_PORT = 30000
"""SGLang's default, and the embedded engine's."""
_LOOPBACKS = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}
"""Where a server that listens everywhere is asked. On ``::`` it may take IPv6 alone: asyncio's servers do, and so SGLang's."""


@dataclass(frozen=True)
class EngineAddress:
    """An engine's HTTP address. The keys never take part in ``repr``: this record may end up in a log."""

    host: str
    port: int
    api_key: str | None = field(default=None, repr=False)
    admin_key: str | None = field(default=None, repr=False)
    """Some builds ask for a key of its own for changes."""

    @property
    def url(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def engine_address(argv: Sequence[str]) -> EngineAddress | None:
    """The address that a command line asks for; ``None`` when it names no engine or its port is only known at run time."""

    def text(flag: str) -> str | None:
        reading = flag_value(argv, find_knob(f"flag:{flag}"))
        if reading.problem:
            problems.append(reading.problem)
        return reading.text if reading.given and not reading.problem else None

    problems: list[str] = []
    host, port = text("--host") or "127.0.0.1", text("--port") or str(DEFAULT_PORT)
    number = whole(port)
    if problems or number is None or not 0 < number < 65_536:
        return None
    # A server that listens everywhere answers on loopback, and loopback is what a forward reaches.
    return EngineAddress(_LOOPBACKS.get(host, host), number, text("--api-key"), text("--admin-api-key"))
