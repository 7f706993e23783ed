"""An engine that answers at once, with answers made beforehand: `python -m bench.overhead.engine PORT`.

A process of its own, so that its processor time is nobody else's. It answers any request, and so a health check too.
"""

import asyncio
import itertools
import sys
from typing import cast

import uvloop

from bench.overhead.exchange import http_answers
from bench.overhead.http_messages import MessageReader

_answers = itertools.cycle(http_answers())


class Connection(asyncio.Protocol):
    """One connection of Envoy's pool, or of a health check."""

    def __init__(self) -> None:
        self._reader = MessageReader()
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)  # uvloop's own class is not a subclass

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        for _ in self._reader.feed(data):
            self._transport.write(next(_answers))


async def serve(port: int) -> None:
    """Answer until the process is ended."""
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
