"""Tenants by certificate: TLS at the gateway, whose checked peer the policy names by its URI."""

import asyncio
import ssl
from collections.abc import Mapping
from pathlib import Path

import aiohttp
import pytest

from tests.integration.conftest import PuppetStackFactory
from tests.integration.credentials import Authority
from tests.integration.identity_checks import assert_never_asked, assert_told_apart, forging
from tests.integration.identity_filters import PEER, add_mutual_tls
from tests.integration.puppet_engine import Call
from tests.integration.puppet_stack import ONE_SLOT, PuppetStack
from tests.integration.raw_envoy import CHAT, CHAT_BODY

pytestmark = pytest.mark.envoy

ALICE, BOB = "spiffe://mesh/ns/a/sa/alice", "spiffe://mesh/ns/a/sa/bob"


async def ask(
    stack: PuppetStack, client: ssl.SSLContext, headers: Mapping[str, str] | None = None, body: bytes = CHAT_BODY
) -> int:
    """POST a chat over TLS, on a connection of its own; the status."""
    connector = aiohttp.TCPConnector(ssl=client, force_close=True)
    url = stack.url.replace("http:", "https:") + CHAT
    timeout = aiohttp.ClientTimeout(total=30.0)
    async with (
        aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
        session.post(url, data=body, headers={"content-type": "application/json"} if headers is None else headers) as r,
    ):
        await r.read()
        return r.status


async def test_peers_are_told_apart_whatever_else_they_say(puppet: PuppetStackFactory, tmp_path: Path) -> None:
    """The URI in the checked certificate is the tenant; headers that speak of another certificate change nothing."""
    authority = Authority(tmp_path)
    stack = await puppet(policy=PEER, edit=lambda config: add_mutual_tls(config, authority))
    stack.engine.script = Call.complete
    alice, bob = authority.client("alice", ALICE), authority.client("bob", BOB)
    for client, headers in ((alice, None), (bob, None), (alice, forging(BOB)), (alice, forging("mallory"))):
        assert await ask(stack, client, headers) == 200
    await assert_told_apart(stack, {ALICE: 3, BOB: 1})
    assert all("x-forwarded-client-cert" not in call.headers for call in stack.engine.calls)
    await stack.assert_sound()


async def test_without_a_trusted_certificate_nobody_connects(puppet: PuppetStackFactory, tmp_path: Path) -> None:
    """No certificate, or one of another authority, ends the connection, and tidegate is never asked."""
    authority = Authority(tmp_path)
    (tmp_path / "other").mkdir()
    impostor = Authority(tmp_path / "other").issue("alice", [])
    stack = await puppet(policy=PEER, edit=lambda config: add_mutual_tls(config, authority))
    stranger = authority.stranger()
    forged = authority.stranger()
    forged.load_cert_chain(*impostor)
    for client in (stranger, forged):
        with pytest.raises(aiohttp.ClientError):
            await ask(stack, client, forging(ALICE))
    await assert_never_asked(stack)


async def test_a_peer_without_a_uri_is_nameless(puppet: PuppetStackFactory, tmp_path: Path) -> None:
    """Where certificates are optional, peers without one and with one that holds no URI are the common tenant."""
    authority = Authority(tmp_path)
    stack = await puppet(policy=PEER, edit=lambda config: add_mutual_tls(config, authority, required=False))
    stack.engine.script = Call.complete
    for client in (authority.stranger(), authority.client("nameless"), authority.client("alice", ALICE)):
        assert await ask(stack, client, forging(BOB)) == 200
    await assert_told_apart(stack, {"": 2, ALICE: 1})
    await stack.assert_sound()


async def test_the_queue_is_fair_by_peer(puppet: PuppetStackFactory, tmp_path: Path) -> None:
    """A peer that floods under other names goes after the first of another peer's."""
    authority = Authority(tmp_path)
    stack = await puppet(policy=PEER | ONE_SLOT, edit=lambda config: add_mutual_tls(config, authority))
    alice, bob = authority.client("alice", ALICE), authority.client("bob", BOB)
    running = asyncio.create_task(ask(stack, alice))
    first = await stack.engine.call()
    flood = [asyncio.create_task(ask(stack, alice, forging(f"invented-{number}"))) for number in range(6)]
    await stack.held(6)
    waiting = asyncio.create_task(ask(stack, bob, body=CHAT_BODY.replace(b"Hello", b"Hi!!!")))
    await stack.held(7)
    stack.engine.script = Call.complete
    first.complete()
    assert await asyncio.gather(running, waiting, *flood) == [200] * 8
    assert [b"Hi!!!" in call.body for call in stack.engine.calls[1:]].index(True) <= 1
    await stack.assert_sound()


async def test_long_names_do_not_share_a_counter(puppet: PuppetStackFactory, tmp_path: Path) -> None:
    """Two workloads whose URIs differ only after 64 characters are counted apart in Envoy's stats as in the log."""
    start = "spiffe://cluster.example.org/ns/inference-production/sa/chat-frontend"
    authority = Authority(tmp_path)
    stack = await puppet(policy=PEER, edit=lambda config: add_mutual_tls(config, authority))
    stack.engine.script = Call.complete
    for name in ("blue", "green"):
        assert await ask(stack, authority.client(name, f"{start}-{name}")) == 200
    tenants = {line["tenant"] for line in await stack.service.requests(2)}
    assert tenants == {f"{start}-blue", f"{start}-green"}
    await stack.until_counter("admission.requests.tenant.", 2)
    series = [name for name in await stack.admin.stats() if "admission.requests.tenant." in name]
    assert len(series) == 2
