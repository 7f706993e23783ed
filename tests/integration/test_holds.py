"""Holding a request against Envoy's message timeout: with an override it may wait, without one the verdict is quick."""

import asyncio
from typing import Any

import pytest

from tests.integration.conftest import GatedStackFactory, StackFactory
from tests.integration.gated_stack import PATIENT_POOL, GatedStack
from tests.integration.puppet_engine import Call
from tests.integration.stack import Gateway, eventually
from tidegate.sim.envoy_config import Config, ext_proc_filter

pytestmark = pytest.mark.envoy
A_SECOND: dict[str, Any] = {"max_tokens": 34, "ignore_eos": True}
"""An answer that takes the simulated engine a little over a second."""
ADMITTED_UNSEEN = ("message_timeouts", "failure_mode_allowed", "spurious_msgs_received", "streams_failed")


def short_timeout(config: Config) -> None:
    """A message timeout of 200 ms, from which the service may ask for more."""
    ext_proc_filter(config)["message_timeout"] = "0.2s"


def short_timeout_for_all(config: Config) -> None:
    """A message timeout of 200 ms and no way around it."""
    short_timeout(config)
    del ext_proc_filter(config)["max_message_timeout"]


def long_timeout_for_all(config: Config) -> None:
    """A message timeout that no wait exceeds, and no way around it."""
    ext_proc_filter(config)["message_timeout"] = "20s"
    del ext_proc_filter(config)["max_message_timeout"]


async def counters(gateway: Gateway) -> dict[str, int]:
    """The filter's own counters, by their last name."""
    scope = "ext_proc.admission."
    stats = await gateway.admin.stats()
    return {name.partition(scope)[2]: value for name, value in stats.items() if scope in name}


async def warmed_up(gateway: Gateway) -> dict[str, int]:
    """The counters after a first request, which alone pays for the connection to the service."""
    async with gateway.chat(max_tokens=1) as response:
        assert response.status == 200
    return await counters(gateway)


async def ended(gateway: Gateway, decision: str, count: int) -> int:
    """Requests that Envoy says ended with this decision, once they are at least `count`."""

    async def read() -> int:
        stats = await gateway.admin.stats("admission.requests")
        return sum(value for name, value in stats.items() if name.endswith(f".decision.{decision}"))

    return int(await eventually(read, lambda seen: bool(seen >= count), what=f"{count} x {decision}"))


async def test_an_override_makes_a_long_wait_possible(stack: StackFactory) -> None:
    """Where Envoy may be asked for more time, requests wait five message timeouts and more, and are then decided."""
    running = await stack(policy=PATIENT_POOL | {"tidegate-message-timeout-ms": "200"}, edit=short_timeout)
    before = await warmed_up(running)

    async def hold_ms() -> int:
        async with running.chat(stream=True, **A_SECOND) as response:
            assert response.status == 200
            await response.read()
            return int(response.headers["x-tidegate-queue-ms"])

    first = asyncio.create_task(hold_ms())
    await running.until_counter("cluster.engine.upstream_rq_active")
    waits_ms = sorted(await asyncio.gather(hold_ms(), hold_ms()))
    assert await first == 0
    assert waits_ms[0] > 600
    assert waits_ms[1] > 1500
    after = await counters(running)
    assert after["override_message_timeout_received"] - before["override_message_timeout_received"] == 2
    assert after["override_message_timeout_ignored"] == 0
    assert [after[name] - before[name] for name in ADMITTED_UNSEEN] == [0] * len(ADMITTED_UNSEEN)
    assert await ended(running, "delay", 2) == 2


async def test_without_an_override_the_verdict_comes_before_the_timeout(gated: GatedStackFactory) -> None:
    """Where Envoy waits 200 ms at most, whoever gets no slot is refused within them, and nobody passes undecided."""
    policy = {"tidegate-message-timeout-ms": "200", "tidegate-hold-ms-max": None}
    stack = await gated(policy=policy, edit=short_timeout_for_all)
    stack.engine.script = Call.complete
    before = await warmed_up(stack)
    stack.engine.script = None
    running = stack.ask()
    await stack.at_engine(2)
    refused = await asyncio.gather(*(stack.ask() for _ in range(6)))
    for answer in refused:
        assert answer.status in {429, 503}
        assert answer.headers["x-tidegate-reason"].startswith(("expired", "wait_too_long"))
        assert answer.error["code"] in {"expired", "wait_too_long"}
    assert 140 <= max(answer.queue_ms for answer in refused) < 200  # it is a wait, not a refusal at sight
    after = await counters(stack)
    assert after["immediate_responses_sent"] == 6
    assert after["override_message_timeout_received"] == after["override_message_timeout_ignored"] == 0
    assert [after[name] - before[name] for name in ADMITTED_UNSEEN] == [0] * len(ADMITTED_UNSEEN)
    await stack.at_engine(2)
    stack.release()
    assert (await running).status == 200


async def test_a_wait_within_the_message_timeout_is_not_announced(gated: GatedStackFactory) -> None:
    """A hold that fits into message_timeout asks Envoy for nothing: an override would only be ignored and counted."""
    policy = {"tidegate-message-timeout-ms": "20000", "tidegate-hold-ms-max": None}
    stack = await gated(policy=policy, edit=long_timeout_for_all)
    streaming, _, held = await stack.streaming_and_held(held=2)
    stack.release()
    assert [answer.status for answer in await asyncio.gather(streaming, *held)] == [200, 200, 200]
    after = await counters(stack)
    assert after["override_message_timeout_received"] == after["override_message_timeout_ignored"] == 0
    assert [after[name] for name in ADMITTED_UNSEEN] == [0] * len(ADMITTED_UNSEEN)


async def test_envoy_counts_what_tidegate_counts(gated: GatedStackFactory) -> None:
    """After admits, holds, refusals, a client that left while held and a GET, the two sets of counters agree."""
    stack = await gated(policy={"tidegate-queue-len-max": "3"})
    streaming, _, held = await stack.streaming_and_held(held=3)
    refused = await asyncio.gather(stack.ask(), stack.ask())
    assert [answer.status for answer in refused] == [429, 429]
    held.pop().cancel()
    await stack.held(2)
    stack.release()
    async with stack.http.get("/v1/completions") as response:
        assert response.status == 200
    assert [answer.status for answer in await asyncio.gather(streaming, *held)] == [200, 200, 200]
    await agree(stack, {"admit": 1, "delay": 2, "reject": 2, "pass": 1}, left=1)


async def agree(stack: GatedStack, decisions: dict[str, int], *, left: int) -> None:
    """Fails unless both sides have counted these decisions, and `left` clients that went away while held."""
    requests = sum(decisions.values()) + left
    await stack.service.until("streams_total", requests)
    await stack.service.until("outcomes_total", requests)
    for decision, count in decisions.items():
        assert await stack.service.metric("decisions_total", decision=decision) == count, decision
        assert await ended(stack, decision, count) == count
    assert await ended(stack, "pending", left) == left
    assert await stack.service.metric("outcomes_total", ending="client_cancelled") == left
    ours: dict[str, Any] = {
        "streams_started": requests,
        "streams_closed": requests,
        "immediate_responses_sent": decisions["reject"],
        "override_message_timeout_received": decisions["delay"] + left,
        "override_message_timeout_ignored": 0,
    }
    theirs = await counters(stack)
    assert {name: theirs[name] for name in ours} == ours
    assert [theirs[name] for name in ADMITTED_UNSEEN] == [0] * len(ADMITTED_UNSEEN)
