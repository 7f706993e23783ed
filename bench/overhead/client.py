"""A light load generator: keep-alive connections that each send the next request once they have their answer.

`python -m bench.overhead.client PORT CONNECTIONS REQUESTS` prints one JSON object. A process of its own, so that its
processor time is nobody else's.
"""

import asyncio
import json
import sys
from time import perf_counter
from typing import cast

import uvloop

from bench.overhead.exchange import http_request
from bench.overhead.http_messages import MessageError, MessageReader


class Run:
    """A number of requests, shared by all connections."""

    def __init__(self, port: int, requests: int) -> None:
        self.request = http_request(port)
        self.left = requests
        self.failed = 0
        self.latencies_s: list[float] = []
        self.ended = asyncio.get_running_loop().create_future()
        self._requests = requests

    def take(self) -> bool:
        """One of the requests that nobody has sent yet; False where there is none."""
        self.left -= 1
        return self.left >= 0

    def record(self, start_line: bytes, latency_s: float) -> None:
        """An answer has come."""
        self.latencies_s.append(latency_s)
        self.failed += start_line.split(b" ", 2)[1] != b"200"
        if len(self.latencies_s) == self._requests:
            self.ended.set_result(None)


class Connection(asyncio.Protocol):
    """One connection with at most one request on the way."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._reader = MessageReader()
        self._transport: asyncio.WriteTransport | None = None
        self._sent_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)  # uvloop's own class is not a subclass
        self._send()

    def data_received(self, data: bytes) -> None:
        for start_line in self._reader.feed(data):
            self._run.record(start_line, perf_counter() - self._sent_s)
            self._send()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._run.ended.done():
            self._run.ended.set_exception(error or MessageError("the gateway closed a connection"))

    def _send(self) -> None:
        if self._run.take():
            assert self._transport is not None
            self._sent_s = perf_counter()
            self._transport.write(self._run.request)


async def main(port: int, connections: int, requests: int) -> dict[str, float]:
    """Send all requests; how many, how long it took in all and each, in seconds."""
    loop = asyncio.get_running_loop()
    run = Run(port, requests)
    started_s = perf_counter()
    for _ in range(connections):
        await loop.create_connection(lambda: Connection(run), "127.0.0.1", port)
    await run.ended
    elapsed_s = perf_counter() - started_s  # the connections end with the process
    ranked = sorted(run.latencies_s)
    return {
        "requests": requests,
        "failed": run.failed,
        "elapsed_s": elapsed_s,
        "p50_s": ranked[len(ranked) // 2],
        "p99_s": ranked[len(ranked) * 99 // 100],
    }


if __name__ == "__main__":
    print(json.dumps(uvloop.run(main(*map(int, sys.argv[1:4])))))
