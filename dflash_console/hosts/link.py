"""The way from a service's configuration to its engine's HTTP API, kept open between requests."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .transport import HostError

if TYPE_CHECKING:
    from .address import EngineAddress
    from .http import EngineHttp
    from .service import ServiceConfig
    from .transport import Transport


class EngineLink:
    """One engine's HTTP API as seen from here; follows it when its port or key changes with a restart."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._http: EngineHttp | None = None
        self._address: EngineAddress | None = None
        self._forward = contextlib.AsyncExitStack()

    async def open(self, config: ServiceConfig, *, running: bool = True, argv: Sequence[str] = ()) -> EngineHttp:
        """The client for the engine that runs (``running``) or that would be started.

        Args:
            argv: of the process that runs, where it is known. A systemd that was told to read changed files has loaded the next
                start's command; the engine that runs listens where it was told at its own.

        Raises:
            HostError: the command line names no engine, or its port is only known when it runs.
        """
        # Imported when an engine is spoken to: a service's state is shown before that, and must not wait for it.
        from ..evidence.command import find_engine
        from .address import engine_address
        from .http import EngineHttp

        command = config.loaded if running and config.loaded is not None else config.command
        if running and argv and find_engine(argv) is not None:
            command = tuple(argv)
        address = engine_address(command)
        if address is None:
            raise HostError("the command line does not tell where the engine listens: no engine with a --port is named in it")
        if self._http is None or address != self._address:
            await self.close()
            url = await self._forward.enter_async_context(self._transport.forward(address.port, address=address.host))
            self._http = EngineHttp(url, api_key=address.api_key, admin_key=address.admin_key)
            self._address = address
        return self._http

    async def close(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.close()
        await self._forward.aclose()
        self._forward = contextlib.AsyncExitStack()
