"""An engine that speaks to both kinds of clients at once: it plays captured answers, and holds what it is told to."""

import asyncio
import json
from typing import Self

from aiohttp import web

from tests.integration.scripted_engine import CAPTURES

HOLD_HEADER = "x-test-hold"
"""Requests with it are not answered until `release` is called with its value."""

CHAT, CHAT_STREAM = CAPTURES / "vllm-chat.json", CAPTURES / "vllm-chat-stream-usage.sse"
MESSAGE, MESSAGE_STREAM = CAPTURES / "vllm-messages.json", CAPTURES / "vllm-messages-stream.sse"


class SdkEngine:
    """An HTTP/1.1 engine on one port of 127.0.0.1; an async context manager."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._released: dict[str, asyncio.Event] = {}
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    def release(self, name: str) -> None:
        """Answer the requests held under this name."""
        self._gate(name).set()

    def _gate(self, name: str) -> asyncio.Event:
        return self._released.setdefault(name, asyncio.Event())

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        wants_stream = bool(json.loads(await request.read()).get("stream"))
        if name := request.headers.get(HOLD_HEADER):
            await self._gate(name).wait()
        is_message = request.path.endswith("/v1/messages")
        if wants_stream:
            content = (MESSAGE_STREAM if is_message else CHAT_STREAM).read_bytes()
            return web.Response(body=content, headers={"content-type": "text/event-stream; charset=utf-8"})
        content = (MESSAGE if is_message else CHAT).read_bytes()
        return web.Response(body=content, content_type="application/json")
