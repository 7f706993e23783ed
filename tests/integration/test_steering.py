"""Tidegate chooses the engine, and the real Envoy goes there; or Envoy chooses, and nothing says where."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import factory
from tests.integration.puppet_engine import Call
from tests.integration.stack import eventually
from tests.integration.steered_stack import ENGINE_HEADER, SteeredStack, steered_stack
from tidegate.sim.envoy_config import Config, cluster

pytestmark = pytest.mark.envoy
StackFactory = Callable[..., Awaitable[SteeredStack]]
ONE_EACH = {"tidegate-slots-max": "1", "tidegate-ttft-budget-ms": "60000"}
"""One request runs in an engine, and whoever comes after them waits for its turn."""


@pytest.fixture
async def steered(tmp_path: Path) -> AsyncIterator[StackFactory]:
    """Starts tidegate and Envoy before engines on strings: `await steered(engines=2)`; as of `steered_stack`."""
    async with factory(steered_stack, tmp_path / "steered") as start:
        yield start


async def test_requests_go_where_tidegate_sends_them(steered: StackFactory) -> None:
    """Three engines of one slot get one request each; the fourth goes to the one that comes free, and only then."""
    stack = await steered(policy=ONE_EACH)
    asked = [stack.ask() for _ in range(4)]
    await stack.held(1)
    await stack.arrived(3)
    assert stack.counts == [1, 1, 1]
    freed = stack.engines[list(stack.engines)[1]]
    freed.calls[0].complete()
    await stack.arrived(4)
    assert stack.counts == [1, 2, 1]
    for address, engine in stack.engines.items():
        assert {call.headers[ENGINE_HEADER] for call in engine.calls} == {address}
        for call in engine.calls:
            call.complete()
    assert {answer.status for answer in await asyncio.gather(*asked)} == {200}
    lines = await stack.service.requests(4)
    assert {line["engine"] for line in lines} == set(stack.engines)
    assert not [line for line in lines if "steered" in line]
    assert await stack.service.metric("steer_missed_total") == 0
    await stack.assert_sound()


async def test_a_request_of_an_unknown_api_is_steered_too(steered: StackFactory) -> None:
    """What is booked at a default cost goes where its book is, although its body is never read."""
    stack = await steered(engines=2)
    stack.play(Call.complete)
    for _ in range(4):
        async with stack.http.post("/generate", json={"input": "x" * 100_000}) as response:
            assert response.status == 200
    for address, engine in stack.engines.items():
        assert {call.headers.get(ENGINE_HEADER) for call in engine.calls} <= {address}
        assert all(len(call.body) > 100_000 for call in engine.calls)
    await stack.assert_sound()


async def test_usage_is_asked_for_on_the_way(steered: StackFactory) -> None:
    """A request may be steered and have its body changed in one reply."""
    stack = await steered(engines=2, policy={"tidegate-ask-usage": "on"})
    stack.play(Call.complete)
    assert (await stack.ask(stream=True)).status == 200
    ((address, call),) = [(address, call) for address, engine in stack.engines.items() for call in engine.calls]
    assert call.headers[ENGINE_HEADER] == address
    assert b"include_usage" in call.body
    await stack.assert_sound()


async def test_an_engine_that_cannot_be_reached_gets_nothing(steered: StackFactory) -> None:
    """Its requests are served by the others, three of them at most; then it is down, and it returns when it listens."""
    stack = await steered()
    stack.play(Call.complete)
    assert (await stack.ask()).status == 200
    lost, engine = next(iter(stack.engines.items()))  # of idle engines the first is chosen
    await engine.hang_up()

    async def ask_one() -> float:
        assert (await stack.ask()).status == 200
        return await stack.service.metric("pool_engines_down")

    await eventually(ask_one, lambda down: bool(down == 1), what="one engine down")
    missed = await stack.service.metric("steer_missed_total")
    assert 3 <= missed <= 5  # one more may be on its way before the log has told
    got = sum(stack.counts)
    answers = await asyncio.gather(*(stack.ask() for _ in range(12)))
    assert [answer.status for answer in answers] == [200] * 12
    assert sum(stack.counts) == got + 12
    assert await stack.service.metric("steer_missed_total") <= missed + 1  # a trial, after a second
    assert {line["steered"] for line in stack.service.lines() if "steered" in line} == {lost}
    await engine.listen()
    before = len(engine.calls)

    async def ask_until_it_serves() -> int:
        assert (await stack.ask()).status == 200
        return len(engine.calls)

    await eventually(ask_until_it_serves, lambda calls: bool(calls > before), what="the engine back in service")
    await stack.assert_sound()


async def test_with_every_engine_away_the_pool_is_gone(steered: StackFactory) -> None:
    """Where no engine can be reached requests are refused as `no_engine`."""
    stack = await steered(engines=2, policy={"tidegate-queue-len-max": "0"})
    stack.play(Call.complete)
    assert (await stack.ask()).status == 200
    for engine in stack.engines.values():
        await engine.hang_up()

    async def refused() -> tuple[int, str]:
        answer = await stack.ask()
        return answer.status, answer.headers.get("x-tidegate-reason", "").partition(";")[0]

    await eventually(refused, lambda seen: bool(seen == (503, "no_engine")), what="a refusal for want of an engine")


async def test_a_client_cannot_choose_its_engine(steered: StackFactory) -> None:
    """All ask for one engine, in whatever spelling, and tidegate sends half of them to the other."""
    stack = await steered(engines=2)
    victim = list(stack.engines)[1]
    for count, header in ((2, ENGINE_HEADER), (4, ENGINE_HEADER.title())):
        asked = [stack.ask(headers={header: victim}) for _ in range(2)]
        await stack.arrived(count)
        for engine in stack.engines.values():
            engine.calls[-1].complete()
        assert {answer.status for answer in await asyncio.gather(*asked)} == {200}
        await stack.service.until("pool_in_flight", 0)
    assert stack.counts == [2, 2]
    for address, engine in stack.engines.items():
        assert {call.headers.get(ENGINE_HEADER) for call in engine.calls} == {address}
    await stack.assert_sound()


async def test_a_client_cannot_choose_where_envoy_does(steered: StackFactory) -> None:
    """Without steering a forged endpoint is removed too, on the routes that tidegate does not see included."""
    stack = await steered(engines=2, steer=False)
    stack.play(Call.complete)
    victim = list(stack.engines)[1]
    for _ in range(20):
        assert (await stack.ask(headers={ENGINE_HEADER: victim})).status == 200
        async with stack.http.get("/v1/models", headers={ENGINE_HEADER: victim}) as response:
            assert response.status == 200
    assert stack.told == {None}
    assert min(stack.counts) > 0
    await stack.assert_sound()


async def test_without_steering_envoy_balances(steered: StackFactory) -> None:
    """Off, requests carry no endpoint, all engines get some, and the log tells which."""
    stack = await steered(steer=False)
    stack.play(Call.complete)
    for _ in range(4):
        assert {answer.status for answer in await asyncio.gather(*(stack.ask() for _ in range(8)))} == {200}
    assert stack.told == {None}
    assert min(stack.counts) > 0
    lines = await stack.service.requests(32)
    assert {line["engine"] for line in lines} == set(stack.engines)
    assert await stack.service.metric("steer_missed_total") == 0
    await stack.assert_sound()


async def test_a_shadow_leaves_the_choice_to_envoy(steered: StackFactory) -> None:
    """Under a shadow policy nothing is steered, nothing missed, and the books balance all the same."""
    stack = await steered(policy={"tidegate-shadow": "on"})
    stack.play(Call.complete)
    for _ in range(12):
        assert (await stack.ask()).status == 200
    assert stack.told == {None}
    await stack.service.requests(12)
    assert await stack.service.metric("steer_missed_total") == 0
    await stack.assert_sound()


async def test_an_engine_that_envoy_does_not_know_is_found_out(steered: StackFactory) -> None:
    """Where the cluster lacks an engine of the policy, its requests are served elsewhere, counted, and soon no more."""

    def without_the_first(config: Config) -> None:
        endpoints: list[dict[str, Any]] = cluster(config, "engine")["load_assignment"]["endpoints"][0]["lb_endpoints"]
        del endpoints[0]

    stack = await steered(edit=without_the_first)
    stack.play(Call.complete)

    async def ask_one() -> float:
        assert (await stack.ask()).status == 200
        return await stack.service.metric("pool_engines_down")

    await eventually(ask_one, lambda down: bool(down == 1), what="one engine down")
    unknown = next(iter(stack.engines))
    assert {line["steered"] for line in stack.service.lines() if "steered" in line} == {unknown}
    assert stack.engines[unknown].calls == []
    assert 3 <= await stack.service.metric("steer_missed_total") <= 5
    await stack.assert_sound()
