"""Where a request is sent: in the reply to Envoy, and in what comes back in the access log."""

import pytest
from envoy.data.accesslog.v3.accesslog_pb2 import HTTPAccessLogEntry
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingResponse

from tests.unit.wire.harness import BODY, CHAT, MemoryStream, Service, held
from tidegate.admission.outcome import Outcome
from tidegate.pools import TEXT_UNSEEN_S
from tidegate.receipt import receipt
from tidegate.tally import Count
from tidegate.wire.access_log import outcome_of
from tidegate.wire.answers import ENGINE_HEADER
from tidegate.wire.codec import NAMESPACE, encode
from tidegate.wire.events import BodyMode, Continue, Phase, RequestHeaders

ENGINES = ("10.0.0.1:80", "10.0.0.2:80")
STEERED = {"engines": ",".join(ENGINES), "steer": "on", "slots_max": "1", "ttft_budget_ms": "60000"}
PICTURE = RequestHeaders({":method": "POST", ":path": "/v1/images/generations"})


async def admitted(stream: MemoryStream) -> Continue:
    """The next answer, which lets the request go."""
    reply = await stream.heard()
    assert isinstance(reply, Continue)
    return reply


async def engine_of(service: Service) -> tuple[MemoryStream, str]:
    """A request that goes at once, and where to: header and metadata say the same."""
    stream, _ = service.stream(CHAT, BODY)
    await stream.heard()
    reply = await admitted(stream)
    assert reply.headers is not None
    assert reply.metadata is not None
    assert dict(reply.headers) == {ENGINE_HEADER: reply.metadata["engine"]}
    return stream, reply.headers[ENGINE_HEADER]


def left(service: Service, *streams: MemoryStream) -> None:
    """These requests are over."""
    for stream in streams:
        stream.end()


async def test_requests_are_steered_also_after_a_hold() -> None:
    """Two go to an engine each, and the third to the one that comes free."""
    service = Service(**STEERED, hold_ms_max="60000", message_timeout_ms="60000")
    (first, one), (_, other) = await engine_of(service), await engine_of(service)
    assert {one, other} == set(ENGINES)
    waiting, _ = await held(service)
    assert waiting.silent()
    left(service, first)
    reply = await admitted(waiting)
    assert reply.headers == {ENGINE_HEADER: one}


async def test_what_cannot_be_read_is_steered_in_the_reply_to_its_headers() -> None:
    """An unknown API and a malformed body go where they are booked, over the limit if need be."""
    service = Service(**STEERED)
    for _ in range(3):
        stream, _ = service.stream(PICTURE)
        reply = await admitted(stream)
        assert (reply.phase, reply.body_mode) == (Phase.REQUEST_HEADERS, BodyMode.SKIP_BODY)
        assert reply.headers is not None
        assert reply.headers[ENGINE_HEADER] in ENGINES
    assert service.in_flight() == 3


@pytest.mark.parametrize(
    "policy", [{"engines": STEERED["engines"]}, {**STEERED, "shadow": "on"}], ids=["off", "shadow"]
)
async def test_where_envoy_chooses_nothing_is_said(policy: dict[str, str]) -> None:
    """Without steering, and under a shadow policy, no header is set and no engine noted."""
    service = Service(**policy)
    for _ in range(3):
        stream, _ = service.stream(CHAT, BODY)
        await stream.heard()
        reply = await admitted(stream)
        assert reply.headers is None
        assert "engine" not in (reply.metadata or {})


async def test_an_engine_removed_from_the_policy_drains() -> None:
    """Once the old text has not been seen for a minute nothing more goes there, and what runs there runs on."""
    service = Service(**STEERED | {"slots_max": "9"})
    streams = [await engine_of(service) for _ in range(4)]
    assert {engine for _, engine in streams} == set(ENGINES)
    service.metadata = [(key, ENGINES[1] if key == "tidegate-engines" else value) for key, value in service.metadata]
    service.clock.advance(TEXT_UNSEEN_S + 1.0)
    assert {engine for _, engine in [await engine_of(service) for _ in range(5)]} == {ENGINES[1]}
    assert service.in_flight() == 9
    assert service.pool.controller.snapshot(service.clock.now_s()).sequences_max == 9


def test_the_header_is_set_in_place_of_any_other() -> None:
    """In the reply to headers and to a body, beside a changed body's length."""
    for phase in (Phase.REQUEST_HEADERS, Phase.REQUEST_BODY):
        body = b"{}" if phase is Phase.REQUEST_BODY else None
        reply = ProcessingResponse.FromString(
            encode(Continue(phase, body=body, headers={ENGINE_HEADER: "10.0.0.1:80"}))
        )
        options = getattr(reply, phase.value).response.header_mutation.set_headers
        told = {option.header.key: option.header.raw_value for option in options}
        lengths = {} if body is None else {"content-length": b"2"}
        assert told == lengths | {ENGINE_HEADER: b"10.0.0.1:80"}
        assert {option.append_action for option in options} == {options[0].OVERWRITE_IF_EXISTS_OR_ADD}


def entry(host: str, steered: str) -> HTTPAccessLogEntry:
    """An entry of a request that was served at port 80 of this host."""
    logged = HTTPAccessLogEntry()
    logged.response.response_code.value = 200
    socket = logged.common_properties.upstream_remote_address.socket_address
    socket.address, socket.port_value = host, 80
    fields = logged.common_properties.metadata.filter_metadata[NAMESPACE].fields
    for name, value in {"id": "r-1", "pool": "default", "decision": "admit", "engine": steered}.items():
        if value:
            fields[name].string_value = value
    return logged


@pytest.mark.parametrize(
    ("host", "steered", "wrong"),
    [
        ("10.0.0.1", "10.0.0.1:80", False),
        ("10.0.0.2", "10.0.0.1:80", True),
        ("2001:db8::1", "[2001:db8::1]:80", False),
        ("10.0.0.2", "", False),
        ("", "10.0.0.1:80", False),
    ],
)
def test_an_entry_tells_whether_the_request_got_there(host: str, steered: str, wrong: bool) -> None:
    """It is wrong where both addresses are known and differ; an IPv6 address is written as policies write it."""
    outcome = outcome_of(entry(host, steered))
    assert outcome is not None
    assert (outcome.steered, outcome.steered_wrong) == (steered, wrong)
    assert ("steered" in receipt(outcome, first=True)) == wrong


async def test_a_miss_is_counted_once() -> None:
    """By pool, and not again where Envoy repeats the entry."""
    service = Service(**STEERED)
    await engine_of(service)
    missed = Outcome(id="r-1", pool="default", decision="admit", steered=ENGINES[0], engine=ENGINES[1])
    service.settlement.take([missed, missed, Outcome(id="r-2", pool="default", steered=ENGINES[0], engine=ENGINES[0])])
    assert service.tally.get(Count.STEER_MISSED, "default") == 1
