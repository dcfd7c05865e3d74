"""From options to a serving process and to its orderly end.

Order: reserve the port, load, listen, say so. The port is bound at once (a busy one is an error before anything is loaded)
but listened on only when the engine is ready, so that "connection refused" means *loading*, as with SGLang.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import FrameType

import uvicorn

from engine_launch.embedded.api import Engine
from engine_launch.embedded.events import EngineLog
from engine_launch.embedded.logs import SglangLog, server_args_line
from engine_launch.embedded.options import EngineOptions
from engine_launch.embedded.server_bind import allow_listening, bind, inherited
from engine_launch.embedded.server_options import ServerOptions, server_args
from engine_launch.embedded.tokenizer import Tokenizer

DRAIN_SECONDS = 5
"""How long running requests may finish after SIGTERM before they are aborted."""
ABORT_SECONDS = 5
"""How long aborted requests may take to tell their clients."""


@dataclass(frozen=True)
class Ready:
    """A loaded engine with the tokenizer of its target."""

    engine: Engine
    tokenizer: Tokenizer


Build = Callable[[EngineOptions, EngineLog], Ready]
"""Loads an engine; replaced in tests."""


class _Uvicorn(uvicorn.Server):
    """uvicorn that tells when it listens, and leaves signals to us.

    Its own handlers would set ``should_exit`` before ours run, which could then not tell a first signal from a second.
    """

    def __init__(self, config: uvicorn.Config, on_listening: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_listening = on_listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_listening()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def run_server(options: ServerOptions, build: Build, logger: logging.Logger) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code.

    Raises:
        StartError: the port cannot be had.
        EngineError: the engine cannot be built.
    """
    begun = time.monotonic()
    reserved = inherited(options.host, options.port) or bind(options.host, options.port)
    options = replace(options, port=reserved.getsockname()[1])
    with contextlib.closing(reserved):
        loading = _Loading()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, loading.stop)
        logger.info("%s", server_args_line(server_args(options)))
        log = SglangLog(logger)
        try:
            ready = build(options.engine, log)
        finally:
            log.end_bar()
        loaded = time.monotonic() - begun
        try:
            return asyncio.run(_serve(options, ready, reserved, {"scheduler_e2e": loaded}, begun, logger, loading))
        finally:
            ready.engine.close()


class _Loading:
    """Ends the process on a signal while nothing runs yet that would need an orderly end."""

    def __init__(self) -> None:
        self._stopped = False

    def stop(self, number: int, frame: FrameType | None) -> None:
        """The signals' handler. What it raises may come up anywhere, also where a library lets nothing through (a callback out of
        C, a bare except); then :meth:`check` ends it.
        """
        self._stopped = True
        with contextlib.suppress(OSError):
            # Not by print, which refuses to be called while the same stream is written to.
            os.write(2, f"\n{signal.Signals(number).name} received while loading; stopped.\n".encode())
        raise SystemExit(0)

    def check(self) -> None:
        """Raises SystemExit when a signal has come."""
        if self._stopped:
            raise SystemExit(0)


async def _serve(
    options: ServerOptions,
    ready: Ready,
    reserved: socket.socket,
    startup_seconds: dict[str, float],
    begun: float,
    logger: logging.Logger,
    loading: _Loading,
) -> int:
    # Imported late: the modules behind the endpoints are not needed to tell that a port is busy.
    from engine_launch.embedded.server import Server

    endpoints = Server(ready.engine, ready.tokenizer, options, startup_seconds)
    config = uvicorn.Config(
        endpoints.app(),
        log_config=None,
        log_level=options.log_level,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=DRAIN_SECONDS + ABORT_SECONDS,
        timeout_keep_alive=30,
    )
    loop = asyncio.get_running_loop()

    def listening() -> None:
        logger.info("Engine startup timings (s): tokenizer_e2e=%.2f", time.monotonic() - begun)
        logger.info("The server is fired up and ready to roll!")
        host = f"[{options.host}]" if ":" in options.host else options.host
        logger.info("INFO:     Uvicorn running on http://%s:%d (Press CTRL+C to quit)", host, options.port)

    server = _Uvicorn(config, listening)

    def stop(number: int) -> None:
        logger.info(
            "%s received. signum=%d frame=None. Draining requests and shutting down...",
            signal.Signals(number).name,
            number,
        )
        if server.should_exit:  # a second signal ends the draining
            endpoints.abort_all()
        else:
            loop.call_later(DRAIN_SECONDS, endpoints.abort_all)
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    loading.check()
    allow_listening(reserved)
    await server.serve(sockets=[reserved])
    return 0 if server.started else 1
