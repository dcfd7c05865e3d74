"""A loopback port that is far away: each byte arrives later, in either direction, and none is lost or reordered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

CHUNK = 65536


@contextlib.asynccontextmanager
async def far_port(port: int, delay_s: float) -> AsyncIterator[int]:
    """A port on loopback that leads to ``port`` with ``delay_s`` seconds added each way; the bandwidth stays what it is."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.create_task(_carry(source, sink, delay_s))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter, delay_s: float) -> None:
    """Reading never waits for a chunk that is under way, so that a delay is no limit of the rate."""
    clock = asyncio.get_running_loop().time
    under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def deliver() -> None:
        while True:
            due, data = await under_way.get()
            await asyncio.sleep(max(0.0, due - clock()))
            if not data:
                break
            sink.write(data)
            await sink.drain()

    async with asyncio.TaskGroup() as group:
        group.create_task(deliver())
        with contextlib.suppress(ConnectionError):
            while data := await source.read(CHUNK):
                under_way.put_nowait((clock() + delay_s, data))
        under_way.put_nowait((clock() + delay_s, b""))
    sink.close()
