"""Shares and the starvation floor under endless load, through the real Envoy and the real service."""

import asyncio
from collections import Counter
from contextlib import suppress

import pytest

from tests.integration.conftest import PuppetStackFactory
from tests.integration.puppet_engine import Call
from tests.integration.puppet_stack import ONE_SLOT, PuppetStack
from tidegate.admission.queues.orders import AGED_AFTER_S, AGED_EVERY

pytestmark = pytest.mark.envoy

PATIENT: dict[str, str | None] = {
    "tidegate-ttft-budget-ms": "600000",
    "tidegate-client-timeout-ms": "3600000",
    "tidegate-mode": "backpressure-first",
}
WEIGHTS = {"one": 1, "two": 2, "four": 4}
TOKENS = {"one": 500, "two": 50, "four": 50, "warm": 50}


def demand(stack: PuppetStack, at_once: int, **asking: dict[str, str]) -> list[asyncio.Task[None]]:
    """Clients without end: so many of each kind, and each asks again as soon as it has its answer."""

    async def client(headers: dict[str, str]) -> None:
        while True:
            assert (await stack.ask(headers=headers, max_tokens=1000)).status == 200

    return [asyncio.create_task(client(headers)) for headers in asking.values() for _ in range(at_once)]


async def warm(stack: PuppetStack, **headers: str) -> None:
    """A puppet answers at once: until that is learned, costs shrink by the hundred, and shares are of costs."""
    for _ in range(300):
        await stack.ask(headers=headers, max_tokens=1000)


async def end(clients: list[asyncio.Task[None]]) -> None:
    """Let all of them go."""
    for client in clients:
        client.cancel()
    await asyncio.gather(*clients, return_exceptions=True)


async def test_token_shares_follow_the_weights(puppet: PuppetStackFactory) -> None:
    """Three tenants of weights 1, 2 and 4 that always ask, one for answers ten times as long: tokens as 1 to 2 to 4."""
    classes = {f"tidegate-class-{name}": f"weight={weight}" for name, weight in WEIGHTS.items()}
    stack = await puppet(
        policy=ONE_SLOT
        | PATIENT
        | classes
        | {"tidegate-class-warm": "weight=1", "tidegate-tenant": "%REQ(x-tenant)%", "tidegate-class": "%REQ(x-tenant)%"}
    )
    spent, enough = Counter[str](), asyncio.Event()

    def answer(call: Call) -> None:
        tenant = call.headers["x-tenant"]
        call.complete(completion_tokens=TOKENS[tenant])
        spent[tenant] += TOKENS[tenant]
        if spent.total() >= 210_000:
            enough.set()

    stack.engine.script = answer
    await warm(stack, **{"x-tenant": "warm"})
    spent.clear()
    clients = demand(stack, 3, **{name: {"x-tenant": name} for name in WEIGHTS})
    await asyncio.wait_for(enough.wait(), 60.0)
    await end(clients)
    shares = {name: spent[name] / spent.total() for name in WEIGHTS}
    assert shares == {name: pytest.approx(weight / 7, rel=0.15) for name, weight in WEIGHTS.items()}


async def test_a_patient_request_is_served_beside_urgent_ones_without_end(puppet: PuppetStackFactory) -> None:
    """It waits five seconds, and then no longer than ten times what goes before it."""
    stack = await puppet(
        policy=ONE_SLOT
        | PATIENT
        | {
            "tidegate-queue-order": "deadline",
            "tidegate-ttft-budget-ms": "60000",
            "tidegate-class-from": "header:x-priority",
            "tidegate-class-batch": "ttft-budget-ms=600000",
        }
    )
    order: list[str] = []

    def answer(call: Call) -> None:
        order.append(call.headers.get("x-priority", "urgent"))
        call.complete(completion_tokens=5)

    stack.engine.script = answer
    await warm(stack)
    held: list[Call] = []
    stack.engine.script = held.append
    clients = demand(stack, 6, urgent={})
    await stack.held(5)
    patient = stack.ask(headers={"x-priority": "batch"}, max_tokens=1000)
    await stack.held(6)
    stack.engine.script = answer
    order.clear()
    held[0].complete()
    answered = await asyncio.wait_for(patient, 30.0)
    await end(clients)
    assert answered.status == 200
    assert AGED_AFTER_S * 1000 <= answered.queue_ms < AGED_AFTER_S * 1000 + 3000
    assert len(order) > 10 * AGED_EVERY  # many went before it
    with suppress(asyncio.CancelledError):
        await stack.leave()
