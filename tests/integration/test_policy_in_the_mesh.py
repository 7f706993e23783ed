"""The policy as it travels: keys of the filter, keys of a route over them, tenants, shadows, mistakes."""

import asyncio
from copy import deepcopy

import pytest

from tests.integration.conftest import PuppetStackFactory
from tests.integration.puppet_stack import IN_ORDER, ONE_SLOT, REFUSE_ALL_ELSE, Answer, PuppetStack
from tests.integration.stack import eventually
from tidegate.sim.envoy_config import Config, connection_manager

pytestmark = pytest.mark.envoy

EXT_PROC_PER_ROUTE = "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute"
FAIR = ONE_SLOT | {"tidegate-tenant": "%REQ(x-tenant)%"}


def add_route(config: Config, path: str, keys: dict[str, str]) -> None:
    """A copy of the inference route for one path, with keys of its own: as the shipped file tells users to."""
    routes = connection_manager(config)["route_config"]["virtual_hosts"][0]["routes"]
    route = deepcopy(next(route for route in routes if route["name"] == "inference-openai"))
    route["name"], route["match"] = path, {"path": path}
    overrides = {"grpc_initial_metadata": [{"key": key, "value": value} for key, value in keys.items()]}
    route["typed_per_filter_config"]["tidegate"] = {"@type": EXT_PROC_PER_ROUTE, "overrides": overrides}
    routes.insert(0, route)


async def fill(stack: PuppetStack) -> asyncio.Task[Answer]:
    """Take the only slot, until `empty`."""
    running = stack.ask()
    await stack.engine.call()
    return running


async def empty(stack: PuppetStack, running: asyncio.Task[Answer]) -> None:
    """End what `fill` began."""
    stack.engine.calls[0].complete()
    assert (await running).status == 200


async def test_a_route_overrides_single_keys(puppet: PuppetStackFactory) -> None:
    """A route's budget replaces the filter's for its requests alone; pool and capacity stay shared."""
    strict = "/strict/v1/chat/completions"
    stack = await puppet(
        policy=ONE_SLOT | IN_ORDER,
        edit=lambda config: add_route(config, strict, {"tidegate-ttft-budget-ms": "50"}),
    )
    running = await fill(stack)
    refused = await stack.ask(strict)
    assert refused.status == 429
    assert "wait_too_long" in refused.headers["x-tidegate-reason"]
    assert "threshold=0.025;" in refused.headers["x-tidegate-reason"]
    waiting = stack.ask()
    await stack.held(1)
    stack.engine.script = lambda call: call.complete()
    await empty(stack, running)
    assert (await waiting).status == 200
    await stack.service.until("pool_in_flight", 0)
    assert (await stack.ask(strict)).status == 200
    assert await stack.service.metric("pools") == 1
    assert await stack.service.metric("pool_policy_conflict") == 0
    await stack.assert_sound()


async def test_a_shadow_admits_and_says_what_would_have_been(puppet: PuppetStackFactory) -> None:
    """Under a shadow policy whatever would be held or refused goes at once, and its reason names the rule."""
    shadow = "/shadow/v1/chat/completions"
    policy = ONE_SLOT | {"tidegate-queue-len-max": "1"}
    stack = await puppet(policy=policy, edit=lambda config: add_route(config, shadow, {"tidegate-shadow": "on"}))
    running = await fill(stack)
    would_wait = stack.ask(shadow)
    first = await stack.engine.call()
    would_be_refused = stack.ask(shadow)
    second = await stack.engine.call()
    assert (await stack.ask()).status == 429
    for call in (second, first):
        call.complete()
    for answer in (await would_wait, await would_be_refused):
        assert (answer.status, answer.queue_ms) == (200, 0)
    for reason in ("shadow_slots", "shadow_queue_full"):
        assert await stack.service.metric("decisions_total", decision="admit", reason=reason) == 1
    await empty(stack, running)
    lines = await stack.service.requests(4)
    assert sorted(line["reason"] for line in lines if line["decision"] == "admit") == [
        "capacity",
        "shadow_queue_full",
        "shadow_slots",
    ]
    await stack.assert_sound()


async def test_a_flood_of_one_tenant_does_not_push_another_out(puppet: PuppetStackFactory) -> None:
    """A tenant that floods the queue is refused for it; another waits, and goes after at most one of its requests."""
    stack = await puppet(policy=FAIR)
    running = await fill(stack)
    flood = [stack.ask(headers={"x-tenant": "loud"}, max_tokens=12) for _ in range(10)]

    async def settled() -> int:
        return sum(each.done() for each in flood) + int(await stack.service.metric("pool_queue_len"))

    await eventually(settled, lambda count: count == len(flood), what="a word for each of the flood")
    refused = [each.result() for each in flood if each.done()]
    assert 0 < len(refused) < len(flood)
    assert {answer.headers["x-tidegate-reason"].split(";")[0] for answer in refused} == {"wait_too_long"}
    quiet = stack.ask(headers={"x-tenant": "quiet"})
    await stack.held(len(flood) - len(refused) + 1)
    stack.engine.script = lambda call: call.complete()
    await empty(stack, running)
    assert (await quiet).status == 200
    tenants = [call.headers.get("x-tenant") for call in stack.engine.calls[1:]]
    assert tenants.index("quiet") <= 1
    await asyncio.gather(*flood)
    for tenant, count in (("loud", len(flood) - len(refused)), ("quiet", 1)):
        await stack.until_counter(f"admission.requests.tenant.{tenant}.model.tiny.decision.delay", count)
    await stack.assert_sound()


async def test_a_full_queue_still_has_room_for_a_quiet_tenant(puppet: PuppetStackFactory) -> None:
    """Cheap requests of one tenant may fill the queue, but not against a tenant that has nothing in it."""
    stack = await puppet(policy=FAIR | {"tidegate-queue-len-max": "4"})
    running = await fill(stack)
    flood = [stack.ask(headers={"x-tenant": "loud"}) for _ in range(4)]
    await stack.held(4)
    stack.engine.script = lambda call: call.complete()
    quiet = stack.ask(headers={"x-tenant": "quiet"})
    done, _ = await asyncio.wait([quiet], timeout=0.3)
    assert not done, quiet.result().headers["x-tidegate-reason"]
    await empty(stack, running)
    assert (await quiet).status == 200
    await asyncio.gather(*flood)


async def test_a_bad_key_at_the_start_leaves_the_defaults(puppet: PuppetStackFactory) -> None:
    """Without a good policy traffic runs under the defaults; the log says once what is wrong, what right."""
    stack = await puppet(policy={"tidegate-slots-max": "many"})
    stack.engine.script = lambda call: call.complete()
    for _ in range(3):
        assert (await stack.ask()).status == 200
    await expect_one_report(stack, "tidegate-slots-max", "many", "a whole number from 1 to 100000")
    assert await stack.service.metric("decisions_total", pool="engine", decision="admit") == 3
    await stack.assert_sound()


async def test_a_bad_key_on_a_route_leaves_the_last_good_policy(puppet: PuppetStackFactory) -> None:
    """Requests of a route with a mistake run under their pool's last good policy, and other routes never notice."""
    broken = "/broken/v1/chat/completions"
    stack = await puppet(
        policy=REFUSE_ALL_ELSE, edit=lambda config: add_route(config, broken, {"tidegate-shadow": "perhaps"})
    )
    running = await fill(stack)
    for path in (broken, broken, "/v1/chat/completions"):
        answer = await stack.ask(path)
        assert (answer.status, answer.error["code"]) == (429, "queue_full")
    await expect_one_report(stack, "tidegate-shadow", "perhaps", "`on` or `off`")
    await empty(stack, running)
    await stack.assert_sound()


async def expect_one_report(stack: PuppetStack, key: str, value: str, expected: str) -> None:
    """One line of the log names key, value and what would be right; one is counted."""
    assert await stack.service.metric("policy_errors_total") == 1
    errors = [line for line in stack.service.lines("log") if line["level"] == "error"]
    assert len(errors) == 1
    for text in (key, value, expected):
        assert text in errors[0]["message"]
