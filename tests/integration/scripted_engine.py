"""An engine of a few lines: it plays captured answers of real engines and keeps the requests that reached it."""

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Self

from aiohttp import WSMsgType, web

CAPTURES = Path(__file__).parents[1] / "data" / "engines"


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One request as the engine got it; header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class ScriptedEngine:
    """An HTTP/1.1 engine on one port; an async context manager.

    Attributes:
        answer: name of a capture in tests/data/engines, or bytes; streamed where it is server-sent events.
        status: of every answer.
        gate: streams wait for it before their first byte.
    """

    def __init__(self, port: int) -> None:
        self.answer: str | bytes = "vllm-chat.json"
        self.status = 200
        self.headers: dict[str, str] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.received: list[Received] = []
        self._port = port
        app = web.Application(client_max_size=64 << 20)
        app.router.add_get("/v1/realtime", self._echo)
        app.router.add_route("*", "/{path:.*}", self._play)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _play(self, request: web.Request) -> web.StreamResponse:
        headers = {key.lower(): value for key, value in request.headers.items()}
        self.received.append(
            Received(method=request.method, path=request.path_qs, headers=headers, body=await request.read())
        )
        content = self.answer if isinstance(self.answer, bytes) else (CAPTURES / self.answer).read_bytes()
        events = content.startswith((b"data:", b"event:")) and self.status == HTTPStatus.OK
        return await self._stream(request, content) if events else self._whole(content)

    def _whole(self, content: bytes) -> web.Response:
        return web.Response(
            body=content, status=self.status, content_type="application/json", charset="utf-8", headers=self.headers
        )

    async def _stream(self, request: web.Request, content: bytes) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"} | self.headers)
        await response.prepare(request)
        await self.gate.wait()
        for line in content.splitlines(keepends=True):
            await response.write(line)
        await response.write_eof()
        return response

    async def _echo(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                await socket.send_str(message.data)
        return socket
