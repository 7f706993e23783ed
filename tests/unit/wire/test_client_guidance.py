"""What clients are told, and which of their words count, over a stream in memory."""

import asyncio
import json

import pytest

from tests.unit.wire.harness import BODY, CHAT, Service, decision
from tidegate.admission.outcome import Ending, Outcome
from tidegate.intake import Intake
from tidegate.tally import Count
from tidegate.wire.events import Continue, Refuse, RequestBody, RequestHeaders

FULL = {"slots_max": "1", "queue_len_max": "0"}
SHORT = RequestBody(BODY.body.replace(b'"stream"', b'"max_tokens":1,"stream"'))
SOON = {"slots_max": "1", "message_timeout_ms": "2000", "ttft_budget_ms": "1"}
"""Nobody waits but those with a budget of their own."""


def chat(*roles: str) -> RequestBody:
    """A chat whose messages have these roles, oldest first."""
    messages = [{"role": role, "content": "Hello"} for role in roles]
    return RequestBody(json.dumps({"model": "tiny", "stream": True, "messages": messages}).encode())


async def refusal(service: Service, body: RequestBody = BODY, headers: RequestHeaders = CHAT) -> Refuse:
    """The refusal that a request meets, by its headers or by its body."""
    stream, task = service.stream(headers, body)
    reply = await stream.heard()
    if isinstance(reply, Continue):
        reply = await stream.heard()
    assert isinstance(reply, Refuse), reply
    stream.end()
    await task
    return reply


@pytest.mark.parametrize(
    ("policy", "shown"),
    [
        ({}, "queue_full; measured=0; threshold=0; unit=requests"),
        ({"reason": "full"}, "queue_full; measured=0; threshold=0; unit=requests"),
        ({"reason": "code"}, "queue_full"),
    ],
)
async def test_figures_are_shown_where_the_policy_has_it_so(policy: dict[str, str], shown: str) -> None:
    """A client sees the figures or the code alone; the operator's metadata has them always."""
    service = Service(**FULL, **policy)
    first, first_task = await service.admitted()
    reply = await refusal(service)
    assert reply.headers["x-tidegate-reason"] == shown
    assert reply.metadata is not None
    assert {"reason", "measured", "threshold"} <= reply.metadata.keys()
    first.end()
    await first_task


async def test_a_refusal_names_at_least_what_the_engine_asked_for() -> None:
    """After an engine's 429 with 20 s, refusals say 20 s to 30 s, in both headers and however they are rounded."""
    service = Service(**FULL)
    first, first_task = await service.admitted()
    assert int((await refusal(service)).headers["retry-after-ms"]) <= 1500
    asked = Outcome(id="elsewhere", pool=service.pool.name, ending=Ending.ENGINE_REFUSED, retry_after_s=20.0)
    service.settlement.take([asked])
    for _ in range(50):
        headers = (await refusal(service)).headers
        assert 20_000 <= int(headers["retry-after-ms"]) <= 30_000
        assert 20 <= int(headers["retry-after"]) <= 30
    service.clock.advance(20.0)
    assert int((await refusal(service)).headers["retry-after-ms"]) <= 1500
    first.end()
    await first_task


async def test_without_an_engine_the_engine_s_delay_counts_too() -> None:
    """A 503 for want of an engine spreads its clients over 5 s to 15 s, and never below what an engine asked for."""
    service = Service(**FULL)
    first, first_task = await service.admitted()
    first.end()
    await first_task
    controller = service.pool.controller
    controller.set_engines_alive(0, service.clock.now_s())
    delays_ms = [int((await refusal(service)).headers["retry-after-ms"]) for _ in range(50)]
    assert min(delays_ms) >= 5_000
    assert 12_000 < max(delays_ms) <= 15_000
    service.settlement.take(
        [Outcome(id="elsewhere", pool=service.pool.name, ending=Ending.ENGINE_REFUSED, retry_after_s=12.0)]
    )
    controller.set_engines_alive(0, service.clock.now_s())
    reply = await refusal(service)
    assert reply.details == "tidegate_no_engine"
    assert 12_000 <= int(reply.headers["retry-after-ms"]) <= 30_000


@pytest.mark.parametrize(
    "roles",
    [
        ("user", "assistant", "user"),
        ("system", "user", "assistant", "user"),
        ("user", "assistant", "tool"),
        ("user", "assistant", "assistant"),
    ],
)
async def test_a_conversation_has_a_budget_of_its_own(roles: tuple[str, ...]) -> None:
    """Where the model has answered before a request may wait for the longer budget, and is not refused unread."""
    service = Service(**SOON, conversation_budget_ms="9000")
    first, first_task = await service.admitted()
    stream, task = service.stream(CHAT, chat(*roles))
    assert decision(await stream.heard()) == "pending"
    first.end()
    await first_task
    assert decision(await stream.heard()) == "delay"
    stream.end()
    await task


@pytest.mark.parametrize("roles", [("user",), ("system", "user"), ("user", "user", "user"), ("user", "assistant")])
async def test_a_first_turn_has_not(roles: tuple[str, ...]) -> None:
    """A first question, and the start of an answer that the client has written itself, keep the usual budget."""
    service = Service(**SOON, conversation_budget_ms="9000")
    first, first_task = await service.admitted()
    assert (await refusal(service, chat(*roles))).details == "tidegate_wait_too_long"
    first.end()
    await first_task


async def test_without_that_budget_conversations_are_requests_like_others() -> None:
    """By default, and in a class with a budget, the headers alone are enough to refuse."""
    in_class = {"class": "gold", "class_gold": "ttft-budget-ms=1", "conversation_budget_ms": "9000"}
    for policy in ({}, in_class):
        service = Service(**SOON | policy)
        first, first_task = await service.admitted()
        stream, task = service.stream(CHAT)
        assert isinstance(await stream.heard(), Refuse)
        for each, its_task in ((stream, task), (first, first_task)):
            each.end()
            await its_task


async def test_the_deadline_header_shortens_a_hold() -> None:
    """A client that gives up after 1.5 s is told after 0.7 of them; one that says nothing is not told yet."""
    service = Service(
        slots_max="1", mode="backpressure-first", message_timeout_ms="2000", deadline_header="header:x-deadline-ms"
    )
    first, first_task = await service.admitted()
    headers = RequestHeaders({**CHAT.headers, "x-deadline-ms": "1500", "x-stainless-read-timeout": "600"})
    hurried, hurried_task = service.stream(headers, SHORT)
    patient, patient_task = service.stream(CHAT, SHORT)
    for stream in (hurried, patient):
        assert decision(await stream.heard()) == "pending"
    for _ in range(20):
        await asyncio.sleep(0)  # lets the other tasks run; no time passes
    assert service.queued() == 2
    service.clock.advance(1.06)
    reply = await hurried.heard()
    assert isinstance(reply, Refuse)
    assert reply.details == "tidegate_expired"
    assert patient.silent()
    for stream, task in ((hurried, hurried_task), (patient, patient_task), (first, first_task)):
        stream.end()
        await task
    assert service.tally.get(Count.IGNORED_HEADERS) == 0


@pytest.mark.parametrize(("text", "client_timeout_s"), [("soon", 7.0), ("9000", 7.0), ("4000", 4.0), ("1,2", 7.0)])
async def test_the_policy_s_own_timeout_bounds_it(text: str, client_timeout_s: float) -> None:
    """The header wins over other headers and is bounded by the policy; garbage in it is counted."""
    service = Service(client_timeout_ms="7000", deadline_header="header:x-deadline-ms")
    opening = Intake(service.pools, service.tally, replica="replica").open(
        {**CHAT.headers, "x-deadline-ms": text, "x-stainless-read-timeout": "8"},
        end_of_stream=False,
        attributes={},
        metadata=service.metadata,
        now_s=0.0,
    )
    assert opening.client_timeout_s == client_timeout_s
    assert service.tally.get(Count.IGNORED_HEADERS) == (not text.isdigit())
