"""The access-log service: one entry a finished request, read into an Outcome.

The entry alone says everything: who decided what (our own metadata, namespace `admission`), what the engine reported
(namespace `usage`), and what Envoy measured (custom tags, response, flags). So any replica can take in any entry.
"""

import logging
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from math import isfinite

from envoy.data.accesslog.v3.accesslog_pb2 import HTTPAccessLogEntry, ResponseFlags
from envoy.service.accesslog.v3.als_pb2 import StreamAccessLogsMessage, StreamAccessLogsResponse

from tidegate.admission.outcome import Ending, Outcome
from tidegate.tally import Count, Tally
from tidegate.wire.codec import NAMESPACE, metadata_of
from tidegate.wire.events import Scalar

log = logging.getLogger(__name__)

USAGE_NAMESPACE = "usage"
TOKENS_MAX = 100_000_000
_FLAGS_CLIENT_LEFT = ("downstream_connection_termination", "downstream_remote_reset")
_DETAILS_CLIENT_LEFT = ("downstream_remote_disconnect", "http2.remote_reset", "http3.remote_reset", "codec_error")
_REFUSED_STATUS = (429, 503)


class AccessLogService:
    """Takes in the entries of all Envoys and hands each batch of outcomes on."""

    def __init__(self, take: Callable[[Iterable[Outcome]], None], tally: Tally) -> None:
        self._take = take
        self._tally = tally

    async def stream_access_logs(
        self, messages: AsyncIterator[StreamAccessLogsMessage], _context: object
    ) -> StreamAccessLogsResponse:
        """One Envoy worker's stream of batches; it lasts as long as the worker."""
        async for message in messages:
            try:
                self._take(self._outcomes(message.http_logs.log_entry))
            except Exception:
                self._tally.add(Count.INTERNAL_ERRORS, "access_log")
                log.exception("a batch of access-log entries was not taken in")
        return StreamAccessLogsResponse()

    def _outcomes(self, entries: Iterable[HTTPAccessLogEntry]) -> list[Outcome]:
        outcomes = []
        for entry in entries:
            outcome = outcome_of(entry)
            if outcome is None:
                self._tally.add(Count.STRAY_OUTCOMES)
            else:
                outcomes.append(outcome)
        return outcomes


def outcome_of(entry: HTTPAccessLogEntry) -> Outcome | None:
    """The outcome an entry reports, or None where it names no decision of ours."""
    common = entry.common_properties
    spaces = common.metadata.filter_metadata
    ours = metadata_of(spaces[NAMESPACE]) if NAMESPACE in spaces else {}
    identity = _text(ours, "id")
    if not identity:
        return None
    usage = metadata_of(spaces[USAGE_NAMESPACE]) if USAGE_NAMESPACE in spaces else {}
    tags = common.custom_tags
    stream = ours.get("stream") is True
    status = entry.response.response_code.value
    return Outcome(
        id=identity,
        replica=_text(ours, "replica"),
        pool=_text(ours, "pool"),
        tenant=_text(ours, "tenant_name") or _text(ours, "tenant"),
        model=_text(ours, "model_name") or _text(ours, "model"),
        decision=_text(ours, "decision"),
        reason=_text(ours, "reason"),
        ending=_ending(entry, ours, usage),
        status=status,
        stream=stream,
        prompt_tokens=_tokens(usage.get("prompt_tokens")),
        completion_tokens=_tokens(usage.get("completion_tokens")),
        ttft_s=_tag_s(tags, "ttft_us") if stream else None,
        e2e_s=_tag_s(tags, "e2e_us"),
        duration_s=common.duration.ToNanoseconds() / 1e9,
        hold_s=_number(ours, "hold_ms") / 1000.0,
        engine=_address(entry),
        attempts=common.upstream_request_attempt_count,
        retry_after_s=_retry_after_s(entry.response.response_headers),
        response_bytes=entry.response.response_body_bytes,
        ticket=_ticket(_text(ours, "ticket")),
        predicted_tokens=int(_number(ours, "predicted_tokens")),
        reserved_tokens=int(_number(ours, "reserved_tokens")),
        details=entry.response.response_code_details,
    )


def _ending(entry: HTTPAccessLogEntry, ours: Mapping[str, Scalar], usage: Mapping[str, Scalar]) -> Ending:
    """How it ended. Our own refusal first; then a client that left; then what the engine said."""
    flags = entry.common_properties.response_flags
    details = entry.response.response_code_details
    status = entry.response.response_code.value
    if ours.get("decision") == "reject":
        return Ending.REJECTED
    if ours.get("decision") == "pending" or _client_left(flags, details):
        return Ending.CLIENT_CANCELLED
    if "stream_error" in usage:  # the headers said 200, then an event said that it failed
        refused = str(usage.get("error_code", "")) in {str(code) for code in _REFUSED_STATUS}
        return Ending.ENGINE_REFUSED if refused else Ending.ENGINE_FAILED
    if status in _REFUSED_STATUS and details == "via_upstream":
        return Ending.ENGINE_REFUSED
    if status >= 500 or status == 0 or _cut_short(flags):
        return Ending.ENGINE_FAILED
    return Ending.BAD_REQUEST if status >= 400 else Ending.COMPLETE


def _client_left(flags: ResponseFlags, details: str) -> bool:
    return any(getattr(flags, name) for name in _FLAGS_CLIENT_LEFT) or details.startswith(_DETAILS_CLIENT_LEFT)


def _cut_short(flags: ResponseFlags) -> bool:
    """The answer had begun, and the engine or a timer of Envoy's ended it."""
    return bool(
        flags.upstream_remote_reset
        or flags.upstream_connection_termination
        or flags.upstream_request_timeout
        or flags.stream_idle_timeout
        or flags.duration_timeout
        or flags.upstream_max_stream_duration_reached
        or flags.upstream_protocol_error
    )


def _text(fields: Mapping[str, Scalar], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _number(fields: Mapping[str, Scalar], name: str) -> float:
    value = fields.get(name)
    return value if isinstance(value, float) and isfinite(value) else 0.0


def _tokens(value: Scalar | None) -> int | None:
    """A count of tokens that can be believed, or None."""
    if isinstance(value, float) and isfinite(value) and 0 <= value <= TOKENS_MAX:
        return int(value)
    return None


def _tag_s(tags: Mapping[str, str], name: str) -> float | None:
    """Seconds in a custom tag of microseconds; Envoy writes `-` or nothing where the moment never came."""
    text = tags.get(name, "")
    return int(text) / 1e6 if text.isascii() and text.isdigit() else None


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    text = headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _address(entry: HTTPAccessLogEntry) -> str:
    socket = entry.common_properties.upstream_remote_address.socket_address
    return f"{socket.address}:{socket.port_value}" if socket.address else ""


def _ticket(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        return b""
