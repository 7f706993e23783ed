"""An engine on strings: the test decides when each answer begins, what it says and when it ends."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

from aiohttp import web

STREAM_HEADERS = {"content-type": "text/event-stream; charset=utf-8"}


@dataclass(slots=True, kw_only=True, eq=False)
class Call:
    """One request as the engine got it, and the strings to pull; header names in lower case.

    Attributes:
        at_s: when it came, in the event loop's time.
        gone: set once its client has left before the end.
    """

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    at_s: float
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    _steps: asyncio.Queue[web.Response | bytes | None] = field(default_factory=asyncio.Queue)

    @property
    def wants_stream(self) -> bool:
        """Whether a stream was asked for."""
        return b'"stream": true' in self.body

    def answer(self, content: bytes = b"{}", *, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Answer at once and as a whole."""
        self._steps.put_nowait(
            web.Response(body=content, status=status, headers=headers, content_type="application/json")
        )

    def begin(self) -> None:
        """Send the headers of a stream; no byte of its body yet."""
        self._steps.put_nowait(b"")

    def event(self, fields: dict[str, object] | None = None) -> None:
        """Send one server-sent event; a bit of text where no fields are given."""
        content = {"choices": [{"delta": {"content": "x"}}]} if fields is None else fields
        self._steps.put_nowait(b"data: " + json.dumps(content).encode() + b"\n\n")

    def end(self) -> None:
        """End the stream as engines do."""
        self._steps.put_nowait(b"data: [DONE]\n\n")
        self._steps.put_nowait(None)

    def send(self, content: bytes) -> None:
        """Stream these very bytes; `begin` first, and `close` when it is over."""
        self._steps.put_nowait(content)

    def close(self) -> None:
        """End the stream without a mark."""
        self._steps.put_nowait(None)

    def complete(self, *, prompt_tokens: int = 8, completion_tokens: int = 3) -> None:
        """Answer at once, with usage, streamed where a stream was asked for."""
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
        if not self.wants_stream:
            self.answer(json.dumps({"object": "chat.completion", "usage": usage}).encode())
            return
        self.event()
        self.event({"choices": [], "usage": usage})
        self.end()

    async def play(self, request: web.Request) -> web.StreamResponse:
        """Do what the strings say."""
        step = await self._steps.get()
        if isinstance(step, web.Response):
            return step
        response = web.StreamResponse(headers=STREAM_HEADERS)
        await response.prepare(request)
        while step is not None:
            assert isinstance(step, bytes)
            if step:
                await response.write(step)
            step = await self._steps.get()
        await response.write_eof()
        return response


class PuppetEngine:
    """An HTTP/1.1 engine on one port; an async context manager.

    Attributes:
        script: called with each request as it comes; None leaves the strings to the test.
        calls: all requests, in order.
    """

    def __init__(self, port: int) -> None:
        self.script: Callable[[Call], None] | None = None
        self.calls: list[Call] = []
        self._port = port
        self._arrived: asyncio.Queue[Call] = asyncio.Queue()
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.hang_up()

    async def listen(self) -> None:
        """Take connections on the port."""
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True, max_field_size=65536
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()

    async def hang_up(self) -> None:
        """Close every connection and the port: from now on it refuses them."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def call(self, *, wait_s_max: float = 5.0) -> Call:
        """The next request to arrive."""
        return await asyncio.wait_for(self._arrived.get(), wait_s_max)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        call = Call(
            method=request.method,
            path=request.path_qs,
            headers={key.lower(): value for key, value in request.headers.items()},
            body=await request.read(),
            at_s=asyncio.get_running_loop().time(),
        )
        self.calls.append(call)
        self._arrived.put_nowait(call)
        if self.script is not None:
            self.script(call)
        try:
            return await call.play(request)
        except (asyncio.CancelledError, ConnectionError):
            call.gone.set()
            raise
