"""Refusals over a stream in memory: when they come, whom they hit, and what they tell clients."""

import asyncio

import pytest

from tests.unit.wire.harness import BODY, CHAT, MemoryStream, Service, decision, held
from tidegate.wire.events import Continue, Refuse, RequestBody

SHORT = RequestBody(BODY.body.replace(b'"stream"', b'"max_tokens":1,"stream"'))


def crowded(**policy: str) -> Service:
    """A pool of one slot and one place in its queue, whose requests wait for up to 1.95 s."""
    return Service(
        slots_max="1", queue_len_max="1", message_timeout_ms="2000", ttft_budget_ms="10000", mode="backpressure-first",
        **policy,
    )  # fmt: skip


async def close(*streams: tuple[MemoryStream, "asyncio.Task[None]"]) -> None:
    for stream, task in streams:
        stream.end()
        await task


def refusal(reply: object) -> Refuse:
    assert isinstance(reply, Refuse), reply
    return reply


async def test_a_refusal_tells_clients_when_to_come_back() -> None:
    """retry-after-ms is exact, Retry-After a neighbouring whole number of seconds, at least 1 and at most 30."""
    service = crowded(queue_order="fifo")
    first, second = await service.admitted(), await held(service)
    third, third_task = service.stream(CHAT)
    reply = refusal(await third.heard())
    assert (reply.status, decision(reply)) == (429, "reject")
    delay_ms, delay_s = int(reply.headers["retry-after-ms"]), int(reply.headers["retry-after"])
    assert 1 <= delay_s <= 30
    assert abs(delay_s * 1000 - delay_ms) < 1000
    assert reply.headers["x-tidegate-reason"] == "queue_full; measured=1; threshold=1; unit=requests"
    await close((third, third_task), second, first)


async def test_what_no_body_could_change_is_refused_by_the_headers() -> None:
    """In order of arrival a full queue is full for any request: its body is never asked for."""
    service = crowded(queue_order="fifo")
    first, second = await service.admitted(), await held(service)
    third, third_task = service.stream(CHAT)
    assert refusal(await third.heard()).details == "tidegate_queue_full"
    await close((third, third_task), second, first)


@pytest.mark.parametrize("order", ["cost-deadline", "deadline", "shortest"])
async def test_one_like_those_that_wait_finds_the_queue_full(order: str) -> None:
    """Where size or deadline counts, a request is refused once it is weighed and has no better claim."""
    service = crowded(queue_order=order)
    first, second = await service.admitted(), await held(service)
    third, third_task = service.stream(CHAT, BODY)
    replies = [await third.heard()]
    if isinstance(replies[0], Continue):
        replies.append(await third.heard())
    reply = refusal(replies[-1])
    assert (reply.status, reply.details) == (429, "tidegate_queue_full")
    assert second[0].silent()
    assert service.queued() == 1
    await close((third, third_task), second, first)


async def test_whoever_makes_room_is_answered_at_once() -> None:
    """A short answer takes the place of a long one, whose client is told in the same moment and not at its expiry."""
    service = crowded()
    first, large = await service.admitted(), await held(service)
    small, small_task = service.stream(CHAT, SHORT)
    assert decision(await small.heard()) == "pending"
    reply = refusal(await large[0].heard())
    assert (reply.status, reply.details) == (429, "tidegate_queue_full")
    assert "retry-after" in reply.headers
    assert service.queued() == 1
    await close(large, first)
    assert decision(await small.heard()) == "delay"
    await close((small, small_task))
    assert (service.in_flight(), service.queued()) == (0, 0)


async def test_a_guard_holds_like_any_gate_and_is_named() -> None:
    """A request that waits for a guard is told so when it goes."""
    service = Service(
        gates="concurrency", concurrency_max="1", message_timeout_ms="2000", ttft_budget_ms="10000"
    )  # fmt: skip
    first, second = await service.admitted(), await held(service)
    await close(first)
    reply = await second[0].heard()
    assert isinstance(reply, Continue)
    assert reply.metadata is not None
    assert (reply.metadata["decision"], reply.metadata["reason"]) == ("delay", "concurrency")
    await close(second)
