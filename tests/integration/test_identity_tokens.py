"""Tenants by a verified claim: jwt_authn before tidegate, whose policy names the claim."""

import asyncio
from typing import Any

import pytest

from tests.integration.conftest import PuppetStackFactory
from tests.integration.credentials import Issuer, unsigned
from tests.integration.identity_checks import assert_never_asked, assert_told_apart, forging
from tests.integration.identity_filters import CLAIM, HEADER, JWT, add_claim_guard, add_jwt, take_from_clients
from tests.integration.puppet_engine import Call
from tests.integration.puppet_stack import ONE_SLOT, PuppetStack
from tidegate.sim.envoy_config import Config

pytestmark = pytest.mark.envoy

PRICE: dict[str, str | None] = {"tidegate-price-completion-usd": "1"}
BY_ORG: dict[str, str | None] = {"tidegate-tenant": f"%DYNAMIC_METADATA({JWT}:payload:org)%"}
"""The tenant by a claim that, unlike `sub`, need not be a string."""
ODD_CLAIMS: tuple[object, ...] = (
    "Zoë", "日本", "%", "100%", "%REQ(x-tenant)%", "%%", "a,b", "a", "b", "-", "other", " ", " a", "a\tb", "../a",
    "null", '{"tidegate-tenant":"a"}', True, 4.5, {"a": 1}, ["a", "b"], [],
    "x" * 1024, "x" * 10_240, "x" * 10_239 + "y",
)  # fmt: skip
UNSENDABLE_CLAIMS = ("acme\n", "a\r\ntidegate-pool: b", "a\x00", "\x07", "a\x7f")


async def asked(stack: PuppetStack, issuer: Issuer, **claims: Any) -> int:
    """The status that a request with such a token gets."""
    return (await stack.ask(headers=issuer.bearer(**claims))).status


async def test_users_are_told_apart_whatever_else_they_say(puppet: PuppetStackFactory) -> None:
    """The verified claim is the tenant, in the log, the stats and the bill; headers that deny it change nothing."""
    issuer = Issuer()
    stack = await puppet(policy=CLAIM | PRICE, edit=lambda config: add_jwt(config, issuer))
    stack.engine.script = Call.complete
    alice, bob = issuer.bearer(sub="alice"), issuer.bearer(sub="bob")
    for headers in (alice, bob, forging("bob", alice), forging("mallory", alice)):
        assert (await stack.ask(headers=headers)).status == 200
    await assert_told_apart(stack, {"alice": 3, "bob": 1})
    for tenant, usd in (("alice", 3 * 0.003), ("bob", 0.003)):
        assert await stack.service.metric("cost_usd_total", tenant=tenant) == pytest.approx(usd)
    assert all("authorization" not in call.headers for call in stack.engine.calls)
    await stack.assert_sound()


async def test_a_flood_under_invented_names_is_one_tenant_s(puppet: PuppetStackFactory) -> None:
    """A verified user that forges another name for each request still goes after others' first in line."""
    issuer = Issuer()
    stack = await puppet(policy=CLAIM | ONE_SLOT, edit=lambda config: add_jwt(config, issuer))
    loud, quiet = issuer.bearer(sub="loud"), issuer.bearer(sub="quiet")
    running = stack.ask(headers=loud)
    first = await stack.engine.call()
    flood = [stack.ask(headers=forging(f"invented-{number}", loud)) for number in range(6)]
    await stack.held(6)
    waiting = stack.ask(headers=quiet, user="quiet")
    await stack.held(7)
    stack.engine.script = Call.complete
    first.complete()
    for answer in await asyncio.gather(running, waiting, *flood):
        assert answer.status == 200
    order = [b'"quiet"' in call.body for call in stack.engine.calls[1:]]
    assert order.index(True) <= 1
    await stack.assert_sound()


async def test_without_a_good_token_nobody_is_let_in(puppet: PuppetStackFactory) -> None:
    """A missing, expired, wrongly signed or unsigned token is Envoy's 401, and tidegate is never asked."""
    issuer, impostor = Issuer(), Issuer()
    stack = await puppet(policy=CLAIM, edit=lambda config: add_jwt(config, issuer))
    good = issuer.token(sub="alice")
    head, payload, signature = good.split(".")
    other_payload = issuer.token(sub="bob").split(".")[1]
    bad = {
        "expired": issuer.token(valid_s=-3600.0, sub="alice"),
        "another's key": impostor.token(sub="alice"),
        "another issuer": issuer.token(iss="https://elsewhere.test", sub="alice"),
        "unsigned": unsigned(iss=issuer.name, sub="alice"),
        "payload exchanged": f"{head}.{other_payload}.{signature}",
        "signature cut": f"{head}.{payload}.",
        "no token": "alice",
        "empty": "",
    }
    for what, token in bad.items():
        answer = await stack.ask(headers=forging("alice", {"authorization": f"Bearer {token}"}))
        assert answer.status == 401, what
    assert (await stack.ask(headers=forging("alice"))).status == 401
    await assert_never_asked(stack)


async def test_where_a_token_may_be_missing_the_nameless_are_one_tenant(puppet: PuppetStackFactory) -> None:
    """Without a token, and without the claim in it, a request is of the common tenant; a bad token is still a 401."""
    issuer = Issuer()
    stack = await puppet(policy=CLAIM, edit=lambda config: add_jwt(config, issuer, required=False))
    stack.engine.script = Call.complete
    nameless = (forging("bob"), issuer.bearer(), issuer.bearer(sub=""))
    for headers in (*nameless, issuer.bearer(sub="bob")):
        assert (await stack.ask(headers=headers)).status == 200
    assert (await stack.ask(headers=Issuer().bearer(sub="bob"))).status == 401
    await assert_told_apart(stack, {"": len(nameless), "bob": 1})
    await stack.assert_sound()


async def test_tokens_that_are_checked_after_tidegate_name_nobody(puppet: PuppetStackFactory) -> None:
    """With the filters in the wrong order all are the common tenant, and who is refused has had a slot first."""
    issuer = Issuer()
    stack = await puppet(policy=CLAIM, edit=lambda config: add_jwt(config, issuer, late=True))
    stack.engine.script = Call.complete
    for headers, status in ((issuer.bearer(sub="alice"), 200), (issuer.bearer(sub="bob"), 200), ({}, 401)):
        assert (await stack.ask(headers=headers)).status == status
    await assert_told_apart(stack, {"": 3})
    assert len(stack.engine.calls) == 2
    await stack.assert_sound()


async def test_odd_claims_are_tenants_like_others(puppet: PuppetStackFactory) -> None:
    """Whatever a claim holds that a header can hold, its requests are seen, and no two claims are one tenant."""
    issuer = Issuer()
    stack = await puppet(policy=BY_ORG, edit=lambda config: add_jwt(config, issuer))
    stack.engine.script = Call.complete
    for claim in ODD_CLAIMS:
        assert await asked(stack, issuer, sub="user", org=claim) == 200, claim
    lines = await stack.service.requests(len(ODD_CLAIMS))
    tenants = [line["tenant"] for line in lines]
    assert len(set(tenants)) == len(ODD_CLAIMS)
    assert max(map(len, tenants)) <= 128
    assert [tenant for tenant in tenants if len(tenant) < 64][:6] == list(ODD_CLAIMS[:6])
    await stack.assert_sound()


async def test_claims_that_are_no_text_are_taken_as_printed(puppet: PuppetStackFactory) -> None:
    """A number is the tenant of its digits, an object that of its JSON, and what is null or empty names nobody."""
    issuer = Issuer()
    stack = await puppet(policy=BY_ORG, edit=lambda config: add_jwt(config, issuer))
    stack.engine.script = Call.complete
    for claim in (42, "42", True, {"a": [1]}, None, ""):
        assert await asked(stack, issuer, sub="user", org=claim) == 200, claim
    lines = await stack.service.requests(6)
    assert [line.get("tenant", "") for line in lines] == ["42", "42", "true", '{"a":[1]}', "", ""]


async def test_long_claims_are_told_apart_to_their_ends(puppet: PuppetStackFactory) -> None:
    """Two users whose long names differ at the very end are two tenants, whatever the length."""
    issuer = Issuer()
    stack = await puppet(policy=CLAIM, edit=lambda config: add_jwt(config, issuer))
    stack.engine.script = Call.complete
    names = [start + end for start in ("x" * 128, "y" * 1_023, "z" * 1_024) for end in "ab"]
    for name in names:
        assert await asked(stack, issuer, sub=name) == 200
    lines = await stack.service.requests(len(names))
    assert len({line["tenant"] for line in lines}) == len(names)


async def test_a_claim_that_metadata_cannot_carry_goes_undecided_but_counted(puppet: PuppetStackFactory) -> None:
    """A control character in the claim fails the stream: the request passes unseen, and the alert counts it."""
    issuer = Issuer()
    stack = await puppet(policy=CLAIM, edit=lambda config: add_jwt(config, issuer))
    stack.engine.script = Call.complete
    for claim in UNSENDABLE_CLAIMS:
        assert await asked(stack, issuer, sub=claim) == 200, claim
    await stack.until_counter("no_decision", len(UNSENDABLE_CLAIMS))
    assert await stack.counter("failure_mode_allowed") == len(UNSENDABLE_CLAIMS)
    assert await asked(stack, issuer, sub="alice") == 200
    await assert_told_apart(stack, {"alice": 1})


async def test_a_guard_refuses_claims_that_are_no_names(puppet: PuppetStackFactory) -> None:
    """With an RBAC filter that wants a name, whatever is none gets a 403 and tidegate is never asked."""
    issuer = Issuer()
    stack = await puppet(policy=BY_ORG, edit=lambda config: guarded(config, issuer))
    stack.engine.script = Call.complete
    no_names = (*UNSENDABLE_CLAIMS, "", " ", "Zoë", 42, True, None, {"a": 1}, ["a"], "x" * 49, "x" * 10_240)
    for claim in no_names:
        assert await asked(stack, issuer, sub="user", org=claim) == 403, claim
    assert await asked(stack, issuer, sub="user") == 403
    await assert_never_asked(stack)
    assert await asked(stack, issuer, sub="user", org="acme") == 200
    await assert_told_apart(stack, {"acme": 1})
    await stack.assert_sound()


def guarded(config: Config, issuer: Issuer) -> None:
    """Tokens, and of those only such as name an organisation."""
    add_jwt(config, issuer)
    add_claim_guard(config, "org")


async def test_a_claim_in_a_header_replaces_what_the_client_wrote(puppet: PuppetStackFactory) -> None:
    """jwt_authn writes the claim over a forged header, and takes the header away where there is no claim."""
    issuer = Issuer()
    stack = await puppet(policy=HEADER, edit=lambda config: in_header(config, issuer))
    stack.engine.script = Call.complete
    alice = issuer.bearer(sub="alice")
    for headers in (alice, forging("bob", alice), forging("bob", issuer.bearer()), forging("bob")):
        assert (await stack.ask(headers=headers)).status == 200
    await assert_told_apart(stack, {"alice": 2, "": 2})
    assert [call.headers.get("x-tenant") for call in stack.engine.calls] == ["alice", "alice", None, None]
    await stack.assert_sound()


async def test_a_claim_that_no_header_can_hold_is_refused_by_envoy(puppet: PuppetStackFactory) -> None:
    """In a header, a control character is a 503 of Envoy's on its way to the engine, and the slot comes back."""
    issuer = Issuer()
    stack = await puppet(policy=HEADER | ONE_SLOT, edit=lambda config: in_header(config, issuer))
    assert await asked(stack, issuer, sub="alice\n") == 503
    await stack.service.requests(1)
    assert stack.engine.calls == []
    await stack.assert_sound()


async def test_a_claim_that_no_header_can_hold_is_no_fault_of_the_engine(puppet: PuppetStackFactory) -> None:
    """A user whose name Envoy cannot send on does not have the engine put out of service."""
    issuer = Issuer()
    stack = await puppet(policy=HEADER, edit=lambda config: in_header(config, issuer))
    for claim in UNSENDABLE_CLAIMS:
        assert await asked(stack, issuer, sub=claim) == 503, claim
    await stack.service.requests(len(UNSENDABLE_CLAIMS))
    assert await stack.service.metric("pool_engines_down") == 0


def in_header(config: Config, issuer: Issuer) -> None:
    """Tokens that may be missing, the claim in a header that clients cannot set."""
    take_from_clients(config)
    add_jwt(config, issuer, required=False, to_header=True)
