"""A small HTTP/2 client on one connection, for what ordinary clients cannot be made to do: reset a stream, trail it."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Self
from urllib.parse import urlsplit

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, StreamEnded, StreamReset

Header = tuple[str, str]


class H2Client:
    """HTTP/2 without TLS; an async context manager.

    Attributes:
        status: of each stream whose answer has begun.
        data: received so far, by stream.
        ended: streams that are over, either way.
    """

    def __init__(self, url: str) -> None:
        self.status: dict[int, int] = {}
        self.data: dict[int, bytes] = defaultdict(bytes)
        self.ended: set[int] = set()
        self._authority = urlsplit(url).netloc
        self._h2 = H2Connection(H2Configuration(client_side=True))
        self._news = asyncio.Condition()

    async def __aenter__(self) -> Self:
        host, _, port = self._authority.rpartition(":")
        self._reader, self._writer = await asyncio.open_connection(host, int(port))
        self._h2.initiate_connection()
        self._flush()
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._writer.close()
        await self._writer.wait_closed()

    def post(self, path: str, body: bytes, *, trailers: Sequence[Header] = ()) -> int:
        """Send a request; its stream."""
        stream = self._h2.get_next_available_stream_id()
        head = [(":method", "POST"), (":scheme", "http"), (":authority", self._authority), (":path", path)]
        self._h2.send_headers(stream, [*head, ("content-type", "application/json")])
        self._h2.send_data(stream, body, end_stream=not trailers)
        if trailers:
            self._h2.send_headers(stream, list(trailers), end_stream=True)
        self._flush()
        return stream

    def reset(self, stream: int) -> None:
        """Send RST_STREAM; the connection stays."""
        self._h2.reset_stream(stream, error_code=8)  # CANCEL
        self._flush()

    async def until_status(self, stream: int) -> int:
        """Wait for the headers of an answer; its status."""
        await self._until(lambda: stream in self.status)
        return self.status[stream]

    async def until_data(self, stream: int, text: bytes, *, times: int = 1) -> None:
        """Wait until the answer contains a text so often."""
        await self._until(lambda: self.data[stream].count(text) >= times)

    async def until_ended(self, stream: int) -> int:
        """Wait for the end of an answer; its status."""
        await self._until(lambda: stream in self.ended)
        return self.status[stream]

    async def _until(self, holds: Callable[[], bool]) -> None:
        async with self._news:
            await asyncio.wait_for(self._news.wait_for(holds), 5.0)

    def _flush(self) -> None:
        self._writer.write(self._h2.data_to_send())

    async def _read(self) -> None:
        while data := await self._reader.read(65536):
            for event in self._h2.receive_data(data):
                if isinstance(event, ResponseReceived):
                    self.status[event.stream_id] = int(dict(event.headers)[b":status"])
                elif isinstance(event, DataReceived):
                    self.data[event.stream_id] += event.data
                    self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, StreamEnded | StreamReset):
                    self.ended.add(event.stream_id)
            self._flush()
            async with self._news:
                self._news.notify_all()
