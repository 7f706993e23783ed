"""A gRPC engine on strings that speaks the open inference protocol: the test decides when each answer comes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Self

import grpc
import grpc.aio

from tests.kserve_messages import SERVICE, TYPES, infer_response

_OPTIONS = [("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", 64 << 20)]


@dataclass(slots=True, kw_only=True, eq=False)
class InferCall:
    """One unary request as the engine got it; `gone` is set once its client has left before the end.

    `number` is what a good answer holds.
    """

    request: Any
    metadata: dict[str, str]
    number: float = 0.0
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    _ended: asyncio.Future[grpc.StatusCode] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def complete(self, number: float = 0.0) -> None:
        """Answer with this number."""
        self.number = number
        self._ended.set_result(grpc.StatusCode.OK)

    def fail(self, code: grpc.StatusCode) -> None:
        """Answer with an error."""
        self._ended.set_result(code)

    async def play(self) -> grpc.StatusCode:
        """How it is to end, once that is decided."""
        try:
            return await self._ended
        except asyncio.CancelledError:
            self.gone.set()
            raise


class KServeEngine:
    """A gRPC server on one port; an async context manager.

    Attributes:
        script: called with each unary request as it comes; None leaves the strings to the test.
        calls: all unary requests, in order.
        live: how often it was asked whether it lives.
    """

    def __init__(self, port: int) -> None:
        self.script: Callable[[InferCall], None] | None = None
        self.calls: list[InferCall] = []
        self.live = 0
        self._arrived: asyncio.Queue[InferCall] = asyncio.Queue()
        self._server = grpc.aio.server(options=_OPTIONS)
        request, response = TYPES["ModelInferRequest"], TYPES["ModelInferResponse"]
        codec = {
            "request_deserializer": request.FromString,
            "response_serializer": response.SerializeToString,
        }
        stream_codec = codec | {"response_serializer": TYPES["ModelStreamInferResponse"].SerializeToString}
        handlers = {
            "ModelInfer": grpc.unary_unary_rpc_method_handler(self._infer, **codec),
            "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(self._stream, **stream_codec),
            "ServerLive": grpc.unary_unary_rpc_method_handler(self._alive),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        self._port = port

    async def __aenter__(self) -> Self:
        self._server.add_insecure_port(f"127.0.0.1:{self._port}")
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(0.0)

    async def call(self, *, wait_s_max: float = 5.0) -> InferCall:
        """The next unary request to arrive."""
        return await asyncio.wait_for(self._arrived.get(), wait_s_max)

    async def _infer(self, request: Any, context: Any) -> Any:
        metadata = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
        call = InferCall(request=request, metadata=metadata)
        self.calls.append(call)
        self._arrived.put_nowait(call)
        if self.script is not None:
            self.script(call)
        code = await call.play()
        if code is not grpc.StatusCode.OK:
            await context.abort(code, "Exceeds maximum queue size")
        return infer_response(request.model_name, request_id=request.id, number=call.number)

    async def _stream(self, requests: AsyncIterator[Any], _context: object) -> AsyncIterator[Any]:
        async for request in requests:
            answer = infer_response(request.model_name, request_id=request.id)
            yield TYPES["ModelStreamInferResponse"](infer_response=answer)

    async def _alive(self, _request: bytes, _context: object) -> bytes:
        self.live += 1
        return b"\x08\x01"
