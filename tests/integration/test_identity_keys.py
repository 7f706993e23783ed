"""Tenants by an API key: api_key_auth writes the key's client into a header that tidegate's policy names."""

import asyncio

import pytest

from tests.integration.conftest import PuppetStackFactory
from tests.integration.identity_checks import assert_never_asked, assert_told_apart, forging
from tests.integration.identity_filters import API_KEY, CLAIM, HEADER, add_api_keys, take_from_clients
from tests.integration.puppet_engine import Call
from tests.integration.puppet_stack import ONE_SLOT
from tests.integration.test_policy_in_the_mesh import add_route
from tidegate.sim.envoy_config import Config, routes

pytestmark = pytest.mark.envoy

ALICE, BOB = {"x-api-key": "key-of-alice"}, {"x-api-key": "key-of-bob"}


def keyed(config: Config) -> None:
    """Keys before tidegate, and the header that names the client out of clients' reach."""
    take_from_clients(config)
    add_api_keys(config)


def keyed_but_for_chat(config: Config) -> None:
    """The same, but the inference route is open to all."""
    keyed(config)
    for route in routes(config):
        if route["name"] == "inference-openai":
            off = {"@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "disabled": True, "config": {}}
            route["typed_per_filter_config"][API_KEY] = off


async def test_keys_are_told_apart_whatever_else_their_holders_say(puppet: PuppetStackFactory) -> None:
    """The key's client is the tenant and replaces a forged header; the engine sees the client, never the key."""
    stack = await puppet(policy=HEADER, edit=keyed)
    stack.engine.script = Call.complete
    for headers in (ALICE, BOB, forging("bob", ALICE), forging("mallory", ALICE)):
        assert (await stack.ask(headers=headers)).status == 200
    await assert_told_apart(stack, {"alice": 3, "bob": 1})
    assert [call.headers.get("x-tenant") for call in stack.engine.calls] == ["alice", "bob", "alice", "alice"]
    assert all("x-api-key" not in call.headers for call in stack.engine.calls)
    await stack.assert_sound()


async def test_the_filter_alone_replaces_a_forged_header(puppet: PuppetStackFactory) -> None:
    """Where the filter runs, what it writes replaces every copy that a client sent, in whatever case."""
    stack = await puppet(policy=HEADER, edit=add_api_keys)
    stack.engine.script = Call.complete
    assert (await stack.ask(headers=forging("bob", ALICE))).status == 200
    await assert_told_apart(stack, {"alice": 1})


async def test_without_a_known_key_nobody_is_let_in(puppet: PuppetStackFactory) -> None:
    """No key, an unknown one or two at once are Envoy's 401, and tidegate is never asked."""
    stack = await puppet(policy=HEADER, edit=keyed)
    for key in ("", "key-of-carol", "KEY-OF-ALICE", "key-of-alice ,key-of-bob", "alice"):
        answer = await stack.ask(headers=forging("alice", {"x-api-key": key}))
        assert answer.status == 401, key
    assert (await stack.ask(headers=forging("alice"))).status == 401
    await assert_never_asked(stack)


async def test_a_route_without_keys_has_one_nameless_tenant(puppet: PuppetStackFactory) -> None:
    """Where the filter is off nobody writes the header: since clients' own is removed, all are the common tenant."""
    stack = await puppet(policy=HEADER, edit=keyed_but_for_chat)
    stack.engine.script = Call.complete
    for headers in (forging(""), forging("alice"), forging("bob", ALICE)):
        assert (await stack.ask(headers=headers)).status == 200
    await assert_told_apart(stack, {"": 3})
    assert all("x-tenant" not in call.headers for call in stack.engine.calls)
    await stack.assert_sound()


async def test_a_header_stands_in_only_where_the_policy_names_it(puppet: PuppetStackFactory) -> None:
    """A claim that is missing leaves the common tenant; with both keys in the policy the header is asked next."""
    for policy, tenant in ((CLAIM, ""), (CLAIM | HEADER, "alice")):
        stack = await puppet(policy=policy, edit=keyed)
        stack.engine.script = Call.complete
        assert (await stack.ask(headers=forging("bob", ALICE))).status == 200
        await assert_told_apart(stack, {tenant: 1})


async def test_what_the_router_adds_is_too_late(puppet: PuppetStackFactory) -> None:
    """A header that the route adds reaches the engine and not tidegate: the request is of the common tenant."""
    stack = await puppet(policy=HEADER, edit=added_by_the_route)
    stack.engine.script = Call.complete
    assert (await stack.ask(headers=forging("bob"))).status == 200
    await assert_told_apart(stack, {"": 1})
    assert stack.engine.calls[0].headers["x-tenant"] == "alice"


def added_by_the_route(config: Config) -> None:
    """The tenant's header from the router."""
    take_from_clients(config)
    for route in routes(config):
        route["request_headers_to_add"] = [{"header": {"key": "x-tenant", "value": "alice"}}]


async def test_a_route_may_be_a_tenant_s_own(puppet: PuppetStackFactory) -> None:
    """A constant among a route's keys names the tenant of all its requests; a doubled percent sign is one."""
    path = "/team-a/v1/chat/completions"
    stack = await puppet(edit=lambda config: add_route(config, path, {"tidegate-tenant": "100%%"}))
    stack.engine.script = Call.complete
    for at in (path, "/v1/chat/completions"):
        assert (await stack.ask(at, headers=forging("bob"))).status == 200
    assert [line.get("tenant") for line in await stack.service.requests(2)] == ["100%", None]
    await stack.assert_sound()


async def test_a_lone_percent_sign_lets_everything_through_and_is_counted(puppet: PuppetStackFactory) -> None:
    """Envoy takes the value and then fails each stream: requests pass undecided, and the alert counts them."""
    stack = await puppet(policy={"tidegate-tenant": "100%"})
    stack.engine.script = Call.complete
    for _ in range(2):
        assert (await stack.ask()).status == 200
    await stack.until_counter("no_decision", 2)
    assert stack.service.lines() == []


async def test_the_queue_is_fair_by_key(puppet: PuppetStackFactory) -> None:
    """A client that floods under other names goes after the first of another client's."""
    stack = await puppet(policy=HEADER | ONE_SLOT, edit=keyed)
    before = [stack.ask(headers=who) for who in (ALICE, BOB)]
    for _ in before:  # until an engine has answered them, names from a header share one turn
        (await stack.engine.call()).complete()
    await asyncio.gather(*before)
    await stack.service.until("outcomes_total", 2, ending="complete")
    running = stack.ask(headers=ALICE)
    first = await stack.engine.call()
    flood = [stack.ask(headers=forging(f"invented-{number}", ALICE)) for number in range(6)]
    await stack.held(6)
    waiting = stack.ask(headers=BOB)
    await stack.held(7)
    stack.engine.script = Call.complete
    first.complete()
    assert {answer.status for answer in await asyncio.gather(running, waiting, *flood)} == {200}
    assert [call.headers["x-tenant"] for call in stack.engine.calls[3:]].index("bob") <= 1
    await stack.assert_sound()
