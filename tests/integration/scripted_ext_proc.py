"""A service of a few lines in tidegate's place: it answers what a test tells it to, and keeps what Envoy sent."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self

import grpc
from envoy.service.accesslog.v3 import als_pb2, als_pb2_grpc
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as pb_grpc
from envoy.type.v3.http_status_pb2 import HttpStatus
from google.protobuf.struct_pb2 import Struct


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One reply: admit where `status` is 0, else refuse with it; `headers` go to the engine or to the client."""

    status: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    details: str = ""


@dataclass(slots=True, kw_only=True)
class Seen:
    """One exchange as Envoy showed it: the kinds of its messages, its policy keys, headers, attributes and body."""

    keys: dict[str, str]
    messages: list[str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    ended: asyncio.Event = field(default_factory=asyncio.Event)


Decide = Callable[[Seen], Awaitable[Verdict]]
ADMITTED = {
    "id": "1", "tenant": "acme", "model": "tiny", "stream": True, "decision": "admit", "reason": "capacity",
    "hold_ms": 12, "predicted_tokens": 100,
}  # fmt: skip
REFUSED = ADMITTED | {"decision": "reject", "reason": "queue_full"}


async def admit(_: Seen) -> Verdict:
    """Let everything go."""
    return Verdict(metadata=ADMITTED)


class ScriptedExtProc:
    """ext_proc and access-log service on one port; an async context manager.

    Replies to the headers set `{id, decision: pending}`, or `pass` where no body follows; `decide` answers the body.
    """

    def __init__(self, port: int, decide: Decide = admit) -> None:
        self.decide = decide
        self.seen: list[Seen] = []
        self.entries: asyncio.Queue[Any] = asyncio.Queue()
        self._port = port
        self._server = grpc.aio.server()
        pb_grpc.add_ExternalProcessorServicer_to_server(_Processor(self), self._server)
        als_pb2_grpc.add_AccessLogServiceServicer_to_server(_Entries(self), self._server)

    async def __aenter__(self) -> Self:
        assert self._server.add_insecure_port(f"127.0.0.1:{self._port}") == self._port
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(None)

    async def entry(self) -> Any:
        """The next access-log entry, an HTTPAccessLogEntry."""
        return await asyncio.wait_for(self.entries.get(), 5.0)


class _Processor:
    def __init__(self, script: ScriptedExtProc) -> None:
        self._script = script

    async def Process(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:  # noqa: N802
        seen = Seen(keys={key: value for key, value in context.invocation_metadata() if key.startswith("tidegate-")})
        self._script.seen.append(seen)
        try:
            async for request in requests:
                seen.messages.append(request.WhichOneof("request"))
                yield await self._reply(seen, request)
        finally:
            seen.ended.set()

    async def _reply(self, seen: Seen, request: Any) -> Any:
        kind = request.WhichOneof("request")
        if kind == "request_headers":
            headers = request.request_headers.headers.headers
            seen.headers = {each.key: (each.raw_value or each.value.encode()).decode() for each in headers}
            seen.attributes = {
                key: value.string_value
                for struct in request.attributes.values()
                for key, value in struct.fields.items()
            }
            decision = "pass" if request.request_headers.end_of_stream else "pending"
            common = pb.HeadersResponse(response=pb.CommonResponse())
            return pb.ProcessingResponse(
                request_headers=common, dynamic_metadata=_metadata({"id": "1", "decision": decision})
            )
        if kind == "request_body":
            seen.body = request.request_body.body
            return _answer(await self._script.decide(seen))
        assert kind == "response_trailers", kind
        return pb.ProcessingResponse(response_trailers=pb.TrailersResponse())


class _Entries:
    def __init__(self, script: ScriptedExtProc) -> None:
        self._script = script

    async def StreamAccessLogs(self, messages: AsyncIterator[Any], _: Any) -> Any:  # noqa: N802
        async for message in messages:
            for entry in message.http_logs.log_entry:
                self._script.entries.put_nowait(entry)
        return als_pb2.StreamAccessLogsResponse()


def _answer(verdict: Verdict) -> Any:
    mutation = pb.HeaderMutation()
    for key, value in verdict.headers.items():
        option = mutation.set_headers.add()
        option.header.key, option.header.raw_value = key, value.encode()
    metadata = _metadata(verdict.metadata)
    if verdict.status:
        refusal = pb.ImmediateResponse(
            status=HttpStatus(code=verdict.status), headers=mutation, body=verdict.body, details=verdict.details
        )
        return pb.ProcessingResponse(immediate_response=refusal, dynamic_metadata=metadata)
    common = pb.CommonResponse(header_mutation=mutation)
    return pb.ProcessingResponse(request_body=pb.BodyResponse(response=common), dynamic_metadata=metadata)


def _metadata(values: dict[str, Any]) -> Struct:
    struct = Struct()
    struct.update({"admission": values})
    return struct
