"""Whole exchanges over a stream in memory, under a clock that stands still unless told."""

import asyncio
import sys

from tests.unit.wire.harness import BODY, CHAT, MemoryStream, Service, decision, held
from tidegate.tally import Count
from tidegate.wire.events import (
    AnnounceHold,
    BodyMode,
    Continue,
    Other,
    Phase,
    Refuse,
    RequestBody,
    RequestHeaders,
)

RESPONSE = Other(Phase.RESPONSE_HEADERS)


async def test_the_answer_to_the_headers_already_names_the_request() -> None:
    """A client that leaves while held has an access-log entry only because the headers' answer set metadata."""
    service = Service(slots_max="1", tenant_from="header:x-team")
    stream, task = service.stream(RequestHeaders({**CHAT.headers, "x-team": "blue"}))
    reply = await stream.heard()
    assert isinstance(reply, Continue)
    assert reply.metadata == {
        "id": "replica-1", "replica": "replica", "pool": "default", "tenant": "blue", "decision": "pending"
    }  # fmt: skip
    stream.end()
    await task


async def test_an_admit_books_until_the_stream_ends() -> None:
    """The slot comes back with the end of the stream, and with nothing else."""
    service = Service(slots_max="1")
    stream, task = await service.admitted()
    assert service.in_flight() == 1
    stream.tell(Other(Phase.RESPONSE_TRAILERS))
    assert await stream.heard() == Continue(Phase.RESPONSE_TRAILERS)
    assert service.in_flight() == 1
    stream.end()
    await task
    assert service.in_flight() == 0


async def test_cancelling_the_stream_is_the_same_as_its_end() -> None:
    """gRPC reports the same event in one way or the other; the slot comes back in both."""
    service = Service(slots_max="1")
    _, task = await service.admitted()
    task.cancel()
    await asyncio.wait([task])
    assert service.in_flight() == 0
    assert service.tally.get(Count.STREAMS, "cancel") == 1


async def test_a_held_request_is_admitted_when_a_slot_comes_back() -> None:
    """The hold is announced, lasts until the grant, and its length is in the metadata."""
    service = Service(slots_max="1", message_timeout_ms="2000", hold_ms_max="30000", ttft_budget_ms="20000")
    first, first_task = await service.admitted()
    second, second_task = await held(service)
    assert await second.heard() == AnnounceHold(30.0)
    service.clock.advance(1.5)
    assert second.silent()
    first.end()
    await first_task
    reply = await second.heard()
    assert decision(reply) == "delay"
    assert isinstance(reply, Continue)
    assert reply.metadata is not None
    assert (reply.metadata["hold_ms"], reply.metadata["reason"]) == (1500, "slots")
    second.end()
    await second_task


async def test_a_hold_that_envoy_waits_for_anyway_is_not_announced() -> None:
    """Without a hold key above the message timeout no override is sent, for Envoy may have no room for one."""
    service = Service(slots_max="1", message_timeout_ms="2000", ttft_budget_ms="10000")
    first, first_task = await service.admitted()
    second, second_task = await held(service)
    first.end()
    await first_task
    assert decision(await second.heard()) == "delay"
    second.end()
    await second_task


async def test_a_hold_ends_50_ms_before_envoys_timer() -> None:
    """The verdict has to be on its way before message_timeout runs out, or Envoy admits without us."""
    service = Service(slots_max="1", message_timeout_ms="2000", ttft_budget_ms="10000")
    first, first_task = await service.admitted()
    second, second_task = await held(service)
    service.clock.advance(1.94)
    assert second.silent()
    service.clock.advance(0.011)
    reply = await second.heard()
    assert isinstance(reply, Refuse)
    assert (reply.status, reply.details) == (503, "tidegate_expired")
    assert reply.headers["x-tidegate-reason"] == "expired; measured=1.95; threshold=1.95; unit=s"
    for stream, task in ((first, first_task), (second, second_task)):
        stream.end()
        await task


async def test_a_held_request_does_not_hold_its_body() -> None:
    """Prompts may be megabytes and hundreds may wait: once it is weighed nothing refers to the body any more."""
    service = Service(slots_max="1", message_timeout_ms="2000", ttft_budget_ms="10000")
    first, first_task = await service.admitted()
    body = bytes(bytearray(BODY.body))
    references = sys.getrefcount(body)
    queued = service.queued()
    second, second_task = service.stream(CHAT, RequestBody(body))
    assert decision(await second.heard()) == "pending"
    for _ in range(20):
        await asyncio.sleep(0)
    assert service.queued() == queued + 1
    assert sys.getrefcount(body) == references
    for stream, task in ((first, first_task), (second, second_task)):
        stream.end()
        await task


async def test_a_client_that_leaves_while_held_gives_up_its_place() -> None:
    """The end of a held stream withdraws the request; nothing is answered and nothing stays booked."""
    service = Service(slots_max="1", message_timeout_ms="2000", ttft_budget_ms="10000")
    first, first_task = await service.admitted()
    second, second_task = await held(service)
    second.end()
    await second_task
    assert service.queued() == 0
    assert second.silent()
    first.end()
    await first_task


async def test_envoys_own_answer_ends_a_hold() -> None:
    """Response headers during a hold are Envoy's local reply: the request is withdrawn and the message answered."""
    service = Service(slots_max="1", message_timeout_ms="2000", ttft_budget_ms="10000")
    first, first_task = await service.admitted()
    second, second_task = await held(service)
    second.tell(RESPONSE)
    assert await second.heard() == Continue(Phase.RESPONSE_HEADERS)
    assert service.queued() == 0
    for stream, task in ((first, first_task), (second, second_task)):
        stream.end()
        await task


async def test_draining_gives_every_waiter_its_verdict() -> None:
    """On SIGTERM whoever waits gets a 503 that says so, and new requests are refused in their headers."""
    service = Service(slots_max="1", message_timeout_ms="2000", ttft_budget_ms="10000")
    first, first_task = await service.admitted()
    second, second_task = await held(service)
    service.pool.turnstile.drain()
    reply = await second.heard()
    assert isinstance(reply, Refuse)
    assert (reply.status, reply.details) == (503, "tidegate_shutting_down")
    third, third_task = service.stream(CHAT)
    reply = await third.heard()
    assert isinstance(reply, Refuse)
    assert reply.details == "tidegate_shutting_down"
    for stream, task in ((first, first_task), (second, second_task), (third, third_task)):
        stream.end()
        await task


async def test_letting_go_ends_streams_in_peace() -> None:
    """When the grace is over, handlers return instead of failing, so that Envoy goes on without us."""
    service = Service(slots_max="2")
    _, first = await service.admitted()
    _, second = await service.admitted()
    service.ext_proc.let_go()
    assert await service.ext_proc.streams_ended(5.0)
    assert first.exception() is None
    assert second.exception() is None


async def test_a_bodyless_request_passes_unbooked() -> None:
    """GET /v1/models costs no engine anything; the stream is let go at once."""
    service = Service(slots_max="1")
    stream, task = service.stream(RequestHeaders({":method": "GET", ":path": "/v1/models"}, end_of_stream=True))
    reply = await stream.heard()
    assert isinstance(reply, Continue)
    assert (decision(reply), reply.body_mode) == ("pass", BodyMode.LET_GO)
    assert service.in_flight() == 0
    stream.end()
    await task


async def test_an_unknown_api_is_booked_and_never_refused() -> None:
    """What we cannot read is counted and booked at a default cost, over the limit if need be."""
    service = Service(slots_max="1")
    first, first_task = await service.admitted()
    path = RequestHeaders({":method": "POST", ":path": "/v1/unheard-of"})
    stream, task = service.stream(path)
    reply = await stream.heard()
    assert isinstance(reply, Continue)
    assert (decision(reply), reply.body_mode) == ("admit", BodyMode.SKIP_BODY)
    assert service.in_flight() == 2
    assert service.tally.get(Count.DEFAULT_COST, "default", "unknown_api") == 1
    for each, its_task in ((first, first_task), (stream, task)):
        each.end()
        await its_task
    assert service.in_flight() == 0


async def test_a_malformed_body_passes_at_a_default_cost() -> None:
    """The engine gives the client its own 400; we only count it."""
    service = Service(slots_max="1")
    stream, task = service.stream(CHAT, RequestBody(b"[1, 2"))
    await stream.heard()
    reply = await stream.heard()
    assert isinstance(reply, Continue)
    assert reply.metadata is not None
    assert (reply.metadata["decision"], reply.metadata["reason"]) == ("admit", "malformed_body")
    stream.end()
    await task


async def test_a_shadow_policy_admits_what_it_would_refuse() -> None:
    """Shadow decides and reports; the request goes to the engine all the same, at once."""
    service = Service(slots_max="1", shadow="on", message_timeout_ms="2000", ttft_budget_ms="10000")
    first, first_task = await service.admitted()
    second, second_task = service.stream(CHAT, BODY)
    await second.heard()
    reply = await second.heard()
    assert isinstance(reply, Continue)
    assert reply.metadata is not None
    assert (reply.metadata["decision"], reply.metadata["reason"]) == ("admit", "shadow_slots")
    for stream, task in ((second, second_task), (first, first_task)):
        stream.end()
        await task
    assert (service.in_flight(), service.queued()) == (0, 0)


async def test_a_fault_of_ours_lets_the_request_through() -> None:
    """An exception in a handler would be a 500 or an unseen admit; it is counted and the stream closed in peace."""

    class Broken(MemoryStream):
        async def write(self, message: object) -> None:
            raise RuntimeError("the transport broke")

    service = Service(slots_max="1")
    stream = Broken()
    stream.tell(CHAT)
    await service.ext_proc.process(None, stream)
    assert service.tally.get(Count.INTERNAL_ERRORS, "ext_proc") == 1
    assert service.tally.get(Count.STREAMS, "error") == 1
