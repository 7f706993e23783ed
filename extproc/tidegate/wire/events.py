"""What Envoy tells us on an ext_proc stream, and what we may answer: frozen records, free of protobuf."""

from collections.abc import Mapping
from enum import Enum
from typing import TypeAlias

from msgspec import Struct, field

Scalar: TypeAlias = str | float | bool
"""What a dynamic-metadata field may hold."""


class Phase(Enum):
    """The messages Envoy may send, each of which it wants answered in kind."""

    REQUEST_HEADERS = "request_headers"
    REQUEST_BODY = "request_body"
    REQUEST_TRAILERS = "request_trailers"
    RESPONSE_HEADERS = "response_headers"
    RESPONSE_BODY = "response_body"
    RESPONSE_TRAILERS = "response_trailers"


class RequestHeaders(Struct, frozen=True, gc=False):
    """The request's headers, pseudo-headers included; repeated ones are joined by a comma.

    `attributes` holds what the filter's request_attributes name and Envoy knows, such as `xds.cluster_name`.
    """

    headers: Mapping[str, str]
    end_of_stream: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)


class RequestBody(Struct, frozen=True, gc=False):
    """The request's buffered body. `end_of_stream` says little: a decompressor in front clears it."""

    body: bytes
    end_of_stream: bool = True


class Other(Struct, frozen=True, gc=False):
    """Any later message; only its kind matters."""

    phase: Phase


class Unknown(Struct, frozen=True, gc=False):
    """A message of a kind this version of the API does not know; it cannot be answered in kind."""


Event: TypeAlias = RequestHeaders | RequestBody | Other | Unknown


class BodyMode(Enum):
    """What should become of the rest of the stream, said in the answer to the headers."""

    AS_CONFIGURED = 0
    SKIP_BODY = 1  # send the body on unread, keep the stream open to the end of the exchange
    LET_GO = 2  # nothing more to see: Envoy closes the stream at once


class Continue(Struct, frozen=True, gc=False):
    """Let the message pass, and put `metadata` into Envoy's dynamic metadata.

    `body` replaces the one that is answered; None lets it pass as it came. `headers` are set on the request.
    """

    phase: Phase
    metadata: Mapping[str, Scalar] | None = None
    body_mode: BodyMode = BodyMode.AS_CONFIGURED
    body: bytes | None = None
    headers: Mapping[str, str] | None = None


class AnnounceHold(Struct, frozen=True, gc=False):
    """Ask Envoy to wait longer than message_timeout for the answer that is still owed."""

    timeout_s: float


class Refuse(Struct, frozen=True, kw_only=True, gc=False):
    """Answer the client ourselves. `details` becomes Envoy's RESPONSE_CODE_DETAILS.

    With a `grpc_status` it is a gRPC client's: the status alone, in trailers without headers, `body` its message.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    details: str
    metadata: Mapping[str, Scalar]
    grpc_status: int | None = None


Reply: TypeAlias = Continue | AnnounceHold | Refuse
