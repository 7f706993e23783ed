"""The access-log service: one entry a finished request, read into an Outcome.

The entry alone says everything: who decided what (our own metadata, namespace `admission`), what the engine reported
(namespace `usage`), and what Envoy measured (custom tags, response, flags). So any replica can take in any entry.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping

from envoy.data.accesslog.v3.accesslog_pb2 import HTTPAccessLogEntry, ResponseFlags
from envoy.service.accesslog.v3.als_pb2 import StreamAccessLogsMessage, StreamAccessLogsResponse
from google.protobuf.struct_pb2 import Struct

from tidegate.admission.dollars import NANOUSD_MAX, Price
from tidegate.admission.outcome import Charge, Ending, Outcome
from tidegate.dialects import OPENS_EARLY
from tidegate.tally import Count, Tally
from tidegate.wire.codec import NAMESPACE
from tidegate.wire.fields import Fields

log = logging.getLogger(__name__)

ENTRIES_AT_ONCE = 64
"""After a burst Envoy sends more than a thousand in one batch; taken in at one go, verdicts would wait for them."""

USAGE_NAMESPACE = "usage"
TOKENS_MAX = 100_000_000
_DETAILS_CLIENT_LEFT = ("downstream_remote_disconnect", "http2.remote_reset", "http3.remote_reset", "codec_error")
_DETAILS_UNSENDABLE = "filter_removed_required_request_headers{invalid_header_value"
_REFUSED_STATUS = (429, 503, 529)  # 529: Anthropic's word for overloaded
_REFUSED_CODES = frozenset(map(str, _REFUSED_STATUS))
_REFUSED_TYPES = frozenset({"overloaded_error", "rate_limit_error"})
_ENDING_BY_GRPC_STATUS = {
    **dict.fromkeys(("8", "14"), Ending.ENGINE_REFUSED),  # RESOURCE_EXHAUSTED, UNAVAILABLE: its queue is full
    **dict.fromkeys(("1", "2", "4", "10", "13", "15"), Ending.ENGINE_FAILED),
    **dict.fromkeys(("3", "5", "6", "7", "9", "11", "12", "16"), Ending.BAD_REQUEST),
}
_NOTHING = Fields(Struct())


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
            entries = message.http_logs.log_entry
            self._take_in(entries[:ENTRIES_AT_ONCE])
            for start in range(ENTRIES_AT_ONCE, len(entries), ENTRIES_AT_ONCE):
                await asyncio.sleep(0)  # verdicts go first
                self._take_in(entries[start : start + ENTRIES_AT_ONCE])
        return StreamAccessLogsResponse()

    def _take_in(self, entries: Iterable[HTTPAccessLogEntry]) -> None:
        try:
            self._take(self._outcomes(entries))
        except Exception:
            self._tally.add(Count.INTERNAL_ERRORS, "access_log")
            log.exception("a batch of access-log entries was not taken in")

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
    common, response = entry.common_properties, entry.response
    spaces = common.metadata.filter_metadata
    ours = Fields(spaces[NAMESPACE]) if NAMESPACE in spaces else _NOTHING
    identity = ours.text("id")
    if not identity:
        return None
    usage = Fields(spaces[USAGE_NAMESPACE]) if USAGE_NAMESPACE in spaces else _NOTHING
    tags = common.custom_tags
    stream, api = ours.flag("stream"), ours.text("api")
    decision = ours.text("decision")
    return Outcome(
        id=identity,
        replica=ours.text("replica"),
        pool=ours.text("pool"),
        tenant=ours.text("tenant_name") or ours.text("tenant"),
        model=ours.text("model_name") or ours.text("model"),
        decision=decision,
        reason=ours.text("reason"),
        ending=_ending(entry, decision, usage),
        status=response.response_code.value,
        stream=stream,
        prompt_tokens=_tokens(usage, "prompt_tokens"),
        completion_tokens=_tokens(usage, "completion_tokens"),
        ttft_s=_tag_s(tags, "ttft_us") if stream and api not in OPENS_EARLY else None,
        e2e_s=_tag_s(tags, "e2e_us"),
        duration_s=common.duration.ToNanoseconds() / 1e9,
        hold_s=(ours.number("hold_ms") or 0.0) / 1000.0,
        engine=_address(entry),
        steered=ours.text("engine"),
        attempts=common.upstream_request_attempt_count,
        retry_after_s=_retry_after_s(response.response_headers),
        response_bytes=response.response_body_bytes,
        ticket=ours.text("ticket"),
        predicted_tokens=int(ours.number("predicted_tokens") or 0),
        predicted_p90_tokens=int(ours.number("predicted_p90_tokens") or 0),
        reserved_tokens=int(ours.number("reserved_tokens") or 0),
        details=response.response_code_details,
        api=api,
        charge=_charge(ours) if "predicted_cost_nanousd" in ours else None,
    )


def _ending(entry: HTTPAccessLogEntry, decision: str, usage: Fields) -> Ending:
    """How it ended. Our own refusal first; then a client that left; then what the engine said."""
    common = entry.common_properties
    flags = common.response_flags if common.HasField("response_flags") else None
    details = entry.response.response_code_details
    status = entry.response.response_code.value
    if decision == "reject":
        return Ending.REJECTED
    if decision == "pending" or _client_left(flags, details):
        return Ending.CLIENT_CANCELLED
    if "stream_error" in usage:  # the headers said 200, then an event said that it failed
        refused = usage.text("error_code") in _REFUSED_CODES or usage.text("error_type") in _REFUSED_TYPES
        return Ending.ENGINE_REFUSED if refused else Ending.ENGINE_FAILED
    if status in _REFUSED_STATUS and details == "via_upstream":
        return Ending.ENGINE_REFUSED
    if status >= 500 or status == 0 or _cut_short(flags):
        # a header that Envoy itself would not send: no engine has seen the request
        return Ending.BAD_REQUEST if details.startswith(_DETAILS_UNSENDABLE) else Ending.ENGINE_FAILED
    return Ending.BAD_REQUEST if status >= 400 else _grpc_ending(common.custom_tags)


def _grpc_ending(tags: Mapping[str, str]) -> Ending:
    """What an engine said at the very end; over gRPC the HTTP status is 200 whatever happened."""
    return _ENDING_BY_GRPC_STATUS.get(tags.get("grpc_status", ""), Ending.COMPLETE)


def _client_left(flags: ResponseFlags | None, details: str) -> bool:
    if flags is not None and (flags.downstream_connection_termination or flags.downstream_remote_reset):
        return True
    return details.startswith(_DETAILS_CLIENT_LEFT)


def _cut_short(flags: ResponseFlags | None) -> bool:
    """The answer had begun, and the engine or a timer of Envoy's ended it."""
    return flags is not None and bool(
        flags.upstream_remote_reset
        or flags.upstream_connection_termination
        or flags.upstream_request_timeout
        or flags.stream_idle_timeout
        or flags.duration_timeout
        or flags.upstream_max_stream_duration_reached
        or flags.upstream_protocol_error
    )


def _tokens(usage: Fields, name: str) -> int | None:
    """A count of tokens that can be believed, or None."""
    return _whole(usage, name, TOKENS_MAX)


def _whole(fields: Fields, name: str, highest: int) -> int | None:
    """A number from 0 to `highest`, cut to a whole one, or None."""
    value = fields.number(name)
    return int(value) if value is not None and 0 <= value <= highest else None


def _charge(ours: Fields) -> Charge:
    """The prices that came with the verdict, each a whole number in its bounds or not there."""
    price = Price(
        engine_hour_nanousd=_whole(ours, "price_engine_hour_nanousd", NANOUSD_MAX),
        prompt_nanousd=_whole(ours, "price_prompt_nanousd", NANOUSD_MAX),
        completion_nanousd=_whole(ours, "price_completion_nanousd", NANOUSD_MAX),
    )
    return Charge(
        price=price,
        predicted_nanousd=_whole(ours, "predicted_cost_nanousd", NANOUSD_MAX) or 0,
        predicted_prompt_tokens=_whole(ours, "predicted_prompt_tokens", TOKENS_MAX) or 0,
        sequences=_whole(ours, "sequences", TOKENS_MAX) or 1,
        timed="predicted_service_ms" in ours,
    )


def _tag_s(tags: Mapping[str, str], name: str) -> float | None:
    """Seconds in a custom tag of microseconds; Envoy writes `-` or nothing where the moment never came."""
    text = tags.get(name, "")
    return int(text) / 1e6 if text.isascii() and text.isdigit() else None


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    text = headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _address(entry: HTTPAccessLogEntry) -> str:
    socket = entry.common_properties.upstream_remote_address.socket_address
    host = f"[{socket.address}]" if ":" in socket.address else socket.address
    return f"{host}:{socket.port_value}" if host else ""
