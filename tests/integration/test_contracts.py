"""Contracts, classes and retries through the real Envoy and the real service."""

import asyncio

import pytest

from tests.integration.conftest import PuppetStackFactory
from tests.integration.puppet_stack import IN_ORDER, ONE_SLOT, Answer, PuppetStack

pytestmark = pytest.mark.envoy

BY_TENANT: dict[str, str | None] = {"tidegate-tenant-from": "header:x-tenant"}
TWO_LIMITS: dict[str, str | None] = BY_TENANT | {
    "tidegate-class": "gold",
    "tidegate-class-gold": "concurrency-max=1,requests-per-minute-max=2",
}
ACME, GLOBEX = {"x-tenant": "acme"}, {"x-tenant": "globex"}


async def run_one(stack: PuppetStack, **headers: str) -> tuple[asyncio.Task[Answer], int]:
    """Ask, and wait until the engine has it; the answer to come, and the number of the engine's call."""
    number = len(stack.engine.calls)
    asked = stack.ask(headers=headers)
    await stack.engine.call()
    return asked, number


async def test_what_one_limit_refuses_spends_nothing_of_the_other(puppet: PuppetStackFactory) -> None:
    """Two requests a minute and one at a time: B is refused beside A, and C still has the second of the minute."""
    stack = await puppet(policy=TWO_LIMITS)
    a, number = await run_one(stack, **ACME)
    b = await stack.ask(headers=ACME)
    assert (b.status, b.headers["x-tidegate-reason"].split(";")[0]) == (429, "tenant_concurrency")
    assert 1 <= int(b.headers["retry-after"]) <= 2
    stack.engine.calls[number].complete()
    assert (await a).status == 200
    await stack.service.until("pool_in_flight", 0)
    c, number = await run_one(stack, **ACME)
    stack.engine.calls[number].complete()
    assert (await c).status == 200
    d = await stack.ask(headers=ACME)
    assert (d.status, d.error["code"]) == (429, "tenant_requests")
    assert int(d.headers["retry-after"]) >= 20  # half a minute for one of two requests, less what has passed
    other, number = await run_one(stack, **GLOBEX)
    stack.engine.calls[number].complete()
    assert (await other).status == 200
    await stack.until_counter("admission.rejects.tenant.acme.model.tiny.reason.tenant_requests", 0)
    await stack.assert_sound()


async def test_a_cut_answer_gives_its_place_back_at_once(puppet: PuppetStackFactory) -> None:
    """The client of the one request that its tenant may have leaves; the next is admitted."""
    stack = await puppet(policy=BY_TENANT | {"tidegate-class": "gold", "tidegate-class-gold": "concurrency-max=1"})
    a, _ = await run_one(stack, **ACME)
    a.cancel()
    await stack.service.until("pool_in_flight", 0)
    b, number = await run_one(stack, **ACME)
    stack.engine.calls[number].complete()
    assert (await b).status == 200
    await stack.assert_sound()


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ({"idempotency-key": "k-1"}, {"idempotency-key": "k-1"}),
        ({"x-stainless-retry-count": "0"}, {"x-stainless-retry-count": "1"}),
    ],
)
async def test_three_retries_leave_one_entry_with_the_age_of_the_first(
    puppet: PuppetStackFactory, first: dict[str, str], later: dict[str, str]
) -> None:
    """While the first try waits, retries take its place in turn; the last is served before whoever came between."""
    stack = await puppet(policy=ONE_SLOT | IN_ORDER | BY_TENANT | {"tidegate-ttft-budget-ms": "20000"})
    running, number = await run_one(stack, **ACME)
    tries = [stack.ask(headers=ACME | first)]
    await stack.held(1)
    between = stack.ask(headers=ACME, model="between")
    await stack.held(2)
    stranger = stack.ask(headers=GLOBEX | later)
    await stack.held(3)
    for count in range(1, 4):
        tries.append(stack.ask(headers=ACME | later | _counted(later, count)))
        superseded = await asyncio.wait_for(tries[-2], 5.0)
        assert (superseded.status, superseded.error["code"]) == (409, "superseded")
        assert superseded.headers["x-should-retry"] == "false"
        assert "retry-after" not in superseded.headers
    await stack.held(3)
    stack.engine.script = lambda call: call.complete()
    stack.engine.calls[number].complete()
    assert [(await each).status for each in (running, tries[-1], between, stranger)] == [200] * 4
    served = [call.headers for call in stack.engine.calls[number + 1 :]]
    mine = next(i for i, headers in enumerate(served) if headers.get("x-tenant") == "acme")
    assert any(name in served[mine] for name in later)
    await stack.assert_sound()


async def test_a_client_that_gave_up_comes_back_to_its_place(puppet: PuppetStackFactory) -> None:
    """Its connection is gone and its retry comes: it goes before a request that came after its first try."""
    stack = await puppet(policy=ONE_SLOT | IN_ORDER | {"tidegate-ttft-budget-ms": "20000"})
    running, number = await run_one(stack)
    first = stack.ask(headers={"x-stainless-retry-count": "0"})
    await stack.held(1)
    for _ in range(10):  # it waits for as long as ten others take to come and leave, one after another
        other = stack.ask(model="other")
        await stack.held(2)
        other.cancel()
        await stack.held(1)
    first.cancel()
    await stack.held(0)
    between = stack.ask(model="between")
    await stack.held(1)
    later = stack.ask(headers={"x-stainless-retry-count": "1"})
    await stack.held(2)
    stack.engine.script = lambda call: call.complete()
    stack.engine.calls[number].complete()
    assert [(await each).status for each in (running, later, between)] == [200] * 3
    assert "x-stainless-retry-count" in stack.engine.calls[number + 1].headers
    await stack.assert_sound()


async def test_a_client_steps_down_a_class_and_not_up(puppet: PuppetStackFactory) -> None:
    """Of three that wait, who asked for the patient class goes last, and who asked for the better one gains nothing."""
    stack = await puppet(
        policy=ONE_SLOT
        | {
            "tidegate-queue-order": "deadline",
            "tidegate-ttft-budget-ms": "20000",
            "tidegate-class-from": "header:x-priority",
            "tidegate-class-gold": "ttft-budget-ms=1,weight=100",
            "tidegate-class-batch": "ttft-budget-ms=600000",
        }
    )
    running, number = await run_one(stack)
    asked = []
    for count, priority in enumerate(("batch", "platinum", "gold")):
        asked.append(stack.ask(headers={"x-priority": priority}))
        await stack.held(count + 1)
    stack.engine.script = lambda call: call.complete()
    stack.engine.calls[number].complete()
    assert [(await each).status for each in (running, *asked)] == [200] * 4
    order = [call.headers["x-priority"] for call in stack.engine.calls[number + 1 :]]
    assert order == ["platinum", "gold", "batch"]
    assert await stack.service.metric("ignored_headers_total") == 1
    await stack.assert_sound()


def _counted(later: dict[str, str], count: int) -> dict[str, str]:
    """The next count, where the client counts."""
    return {"x-stainless-retry-count": str(count)} if "x-stainless-retry-count" in later else {}
