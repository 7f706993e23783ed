"""The one place that knows the ext_proc protobuf: Envoy's messages to events, replies to bytes.

The messages are Envoy's own API as gRPC publishes it (`xds-protos`, on upb): a parse costs under a microsecond.
"""

from collections.abc import Mapping
from typing import assert_never

from envoy.config.core.v3.base_pb2 import HeaderValueOption
from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode
from envoy.service.ext_proc.v3.external_processor_pb2 import (
    HeaderMutation,
    ProcessingRequest,
    ProcessingResponse,
)
from google.protobuf.message import DecodeError

from tidegate.wire.events import (
    AnnounceHold,
    BodyMode,
    Continue,
    Event,
    Other,
    Phase,
    Refuse,
    Reply,
    RequestBody,
    RequestHeaders,
    Scalar,
    Unknown,
)

NAMESPACE = "admission"
"""Dynamic-metadata namespace; the filter must list it in metadata_options.receiving_namespaces."""

_PHASE_BY_FIELD = {phase.value: phase for phase in Phase}
_ATTRIBUTES_KEY = "envoy.filters.http.ext_proc"


def decode(data: bytes) -> Event:
    """What one message from Envoy says; bytes that are no message are an `Unknown`."""
    try:
        message = ProcessingRequest.FromString(data)
    except DecodeError:
        return Unknown()
    kind = message.WhichOneof("request")
    if kind == "request_headers":
        return _headers_event(message)
    if kind == "request_body":
        return RequestBody(message.request_body.body, message.request_body.end_of_stream)
    phase = _PHASE_BY_FIELD.get(kind or "")
    return Unknown() if phase is None else Other(phase)


def _headers_event(message: ProcessingRequest) -> RequestHeaders:
    headers: dict[str, str] = {}
    for header in message.request_headers.headers.headers:
        name, raw = header.key, header.raw_value
        # Envoy fills raw_value; header bytes need not be UTF-8
        value = raw.decode(errors="replace") if raw else header.value
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    attributes: dict[str, str] = {}
    if _ATTRIBUTES_KEY in message.attributes:
        for name, field in message.attributes[_ATTRIBUTES_KEY].fields.items():
            attributes[name] = field.string_value
    return RequestHeaders(headers, message.request_headers.end_of_stream, attributes)


def encode(reply: Reply) -> bytes:
    """Bytes of one answer to Envoy."""
    match reply:
        case Continue(phase=phase, metadata=None, body_mode=BodyMode.AS_CONFIGURED, body=None, headers=None):
            return _PLAIN_CONTINUE[phase]
        case Continue():
            response = _continue(reply.phase)
            if reply.metadata:
                _set_metadata(response, reply.metadata)
            if reply.body_mode is not BodyMode.AS_CONFIGURED:
                response.mode_override.CopyFrom(_MODE_OVERRIDES[reply.body_mode])
            if reply.body is not None:
                _replace_body(response, reply.body)
            if reply.headers:
                mutation = getattr(response, reply.phase.value).response.header_mutation
                for name, value in reply.headers.items():
                    _set_header(mutation, name, value)
        case AnnounceHold(timeout_s=timeout_s):
            response = ProcessingResponse()
            response.override_message_timeout.FromNanoseconds(int(timeout_s * 1000) * 1_000_000)
        case Refuse():
            response = _refusal(reply)
        case _:
            assert_never(reply)
    data: bytes = response.SerializeToString()
    return data


def _continue(phase: Phase) -> ProcessingResponse:
    response = ProcessingResponse()
    getattr(response, phase.value).SetInParent()
    return response


def _replace_body(response: ProcessingResponse, body: bytes) -> None:
    common = response.request_body.response
    common.body_mutation.body = body
    # Envoy fails a request whose content-length does not match the new body, and does not correct it by itself.
    _set_header(common.header_mutation, "content-length", str(len(body)))


def _refusal(reply: Refuse) -> ProcessingResponse:
    response = ProcessingResponse()
    immediate = response.immediate_response
    # Envoy answers an unset status with 200, so it is never left to a default
    immediate.status.code = reply.status
    immediate.body = reply.body
    immediate.details = reply.details
    if reply.grpc_status is not None:
        immediate.grpc_status.status = reply.grpc_status
    for name, value in reply.headers.items():
        _set_header(immediate.headers, name, value)
    _set_metadata(response, reply.metadata)
    return response


def _set_header(mutation: HeaderMutation, name: str, value: str) -> None:
    option = mutation.set_headers.add()
    option.header.key = name
    option.header.raw_value = value.encode()
    option.append_action = HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD


def _set_metadata(response: ProcessingResponse, metadata: Mapping[str, Scalar]) -> None:
    fields = response.dynamic_metadata.fields[NAMESPACE].struct_value.fields
    for name, value in metadata.items():
        if isinstance(value, str):
            fields[name].string_value = value
        elif isinstance(value, bool):
            fields[name].bool_value = value
        else:
            fields[name].number_value = value


_PLAIN_CONTINUE: dict[Phase, bytes] = {phase: _continue(phase).SerializeToString() for phase in Phase}
_MODE_OVERRIDES = {
    # An override replaces the whole mode, so each says what it keeps.
    BodyMode.SKIP_BODY: ProcessingMode(
        request_body_mode=ProcessingMode.NONE,
        response_header_mode=ProcessingMode.SKIP,
        response_body_mode=ProcessingMode.NONE,
        response_trailer_mode=ProcessingMode.SEND,
    ),
    BodyMode.LET_GO: ProcessingMode(
        request_body_mode=ProcessingMode.NONE,
        response_header_mode=ProcessingMode.SKIP,
        response_body_mode=ProcessingMode.NONE,
        response_trailer_mode=ProcessingMode.SKIP,
    ),
}
