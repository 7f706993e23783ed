"""What Envoy says to the service, said by hand: one ext_proc stream, message by message, and the access log."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Self

import grpc
from envoy.config.core.v3.base_pb2 import HeaderMap, HeaderValue
from envoy.data.accesslog.v3.accesslog_pb2 import HTTPAccessLogEntry
from envoy.service.accesslog.v3 import als_pb2, als_pb2_grpc
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as pb_grpc

EOF = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs do not know it
CHAT = "/v1/chat/completions"
CHAT_BODY = b'{"model": "tiny", "max_tokens": 1, "messages": [{"role": "user", "content": "Hello"}]}'


class RawEnvoy:
    """A gRPC connection to the service; an async context manager.

    Args:
        port: of the service on 127.0.0.1.
        policy: `tidegate-*` keys that every stream carries.
    """

    def __init__(self, port: int, policy: Mapping[str, str]) -> None:
        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        self._metadata = tuple(policy.items())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close(None)

    def exchange(self) -> "RawExchange":
        """Open a stream of one HTTP exchange."""
        stub = pb_grpc.ExternalProcessorStub(self._channel)
        return RawExchange(stub.Process(metadata=self._metadata, timeout=20.0))

    async def log(self, entries: Sequence[HTTPAccessLogEntry]) -> None:
        """Send one batch of access-log entries and wait until it is taken in."""
        call = als_pb2_grpc.AccessLogServiceStub(self._channel).StreamAccessLogs(timeout=20.0)
        logs = als_pb2.StreamAccessLogsMessage.HTTPAccessLogEntries(log_entry=entries)
        await call.write(als_pb2.StreamAccessLogsMessage(http_logs=logs))
        await call.done_writing()
        await call


class RawExchange:
    """One stream; each method says one thing."""

    def __init__(self, call: Any) -> None:
        self._call = call

    async def ready(self) -> None:
        """Wait until the stream is open."""
        await self._call.wait_for_connection()

    async def headers(self, path: str = CHAT, *, method: str = "POST", end_of_stream: bool = False) -> None:
        pairs = {":method": method, ":path": path, "content-type": "application/json"}
        await self._call.write(pb.ProcessingRequest(request_headers=_headers(pairs, end_of_stream=end_of_stream)))

    async def body(self, content: bytes = CHAT_BODY, *, end_of_stream: bool = True) -> None:
        body = pb.HttpBody(body=content, end_of_stream=end_of_stream)
        await self._call.write(pb.ProcessingRequest(request_body=body))

    async def nothing(self) -> None:
        await self._call.write(pb.ProcessingRequest())

    async def response_headers(self, status: int) -> None:
        await self._call.write(pb.ProcessingRequest(response_headers=_headers({":status": str(status)})))

    async def response_trailers(self) -> None:
        await self._call.write(pb.ProcessingRequest(response_trailers=pb.HttpTrailers()))

    async def reply(self) -> Any:
        """The next ProcessingResponse."""
        reply = await asyncio.wait_for(self._call.read(), 5.0)
        assert reply is not EOF
        return reply

    async def kinds(self, count: int) -> list[str]:
        """The kinds of the next replies."""
        return [(await self.reply()).WhichOneof("response") for _ in range(count)]

    async def ask(self, path: str = CHAT, content: bytes = CHAT_BODY) -> Any:
        """Headers, then the body; the reply to the body."""
        await self.headers(path)
        assert (await self.reply()).WhichOneof("response") == "request_headers"
        await self.body(content)
        return await self.reply()

    async def half_close(self) -> list[str]:
        """Say no more; the kinds of what the service still says, until it ends the stream in peace."""
        await self._call.done_writing()
        rest = []
        while (reply := await asyncio.wait_for(self._call.read(), 5.0)) is not EOF:
            rest.append(reply.WhichOneof("response"))
        assert await self._call.code() is grpc.StatusCode.OK
        return rest

    def cancel(self) -> None:
        """Cancel the call."""
        self._call.cancel()


def _headers(pairs: Mapping[str, str], *, end_of_stream: bool = False) -> Any:
    values = [HeaderValue(key=key, raw_value=value.encode()) for key, value in pairs.items()]
    return pb.HttpHeaders(headers=HeaderMap(headers=values), end_of_stream=end_of_stream)
