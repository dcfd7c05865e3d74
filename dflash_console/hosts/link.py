"""The way from a service's configuration to its engine's HTTP API, kept open between requests."""

from __future__ import annotations

import contextlib
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

    async def open(self, config: ServiceConfig, *, running: bool = True) -> EngineHttp:
        """The client for the engine that runs (``running``) or that would be started.

        Raises:
            HostError: the command line names no engine, or its port is only known when it runs.
        """
        # Imported when an engine is spoken to: a service's state is shown before that, and must not wait for it.
        from .address import engine_address
        from .http import EngineHttp

        command = config.loaded if running and config.loaded is not None else config.command
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
