"""Requests that make no sense: the engine judges them, not the gateway, and nothing of them stays behind."""

import asyncio
import json
from urllib.parse import urlsplit

import pytest

from tests.integration.conftest import PuppetStackFactory
from tests.integration.h2_client import H2Client
from tests.integration.puppet_engine import Call
from tests.integration.puppet_stack import REFUSE_ALL_ELSE, PuppetStack
from tests.integration.raw_envoy import CHAT, CHAT_BODY

pytestmark = pytest.mark.envoy

CHAT_FIELDS = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}]}


def chat(**fields: object) -> bytes:
    return json.dumps(CHAT_FIELDS | fields).encode()


UNREADABLE = {
    "not JSON": b"{",
    "text": b"Hello",
    "an array at the top": b"[" + CHAT_BODY + b"]",
    "a number at the top": b"17",
    "null": b"null",
    "a string": b'"Hello"',
    "200 levels deep": b"[" * 200 + b"]" * 200,
    "100,000 levels deep, never closed": b'{"messages": ' + b"[" * 100_000,
    "bytes that are not UTF-8": b'{"model": "\xff\xfe", "messages": [{"role": "user", "content": "\xc3("}]}',
    "NUL bytes": b"\0" * 64,
    "no messages": b'{"model": "tiny"}',
    "messages of another type": chat(messages="Hello"),
    "UTF-16": CHAT_BODY.decode().encode("utf-16"),
    "two bodies in one": CHAT_BODY + CHAT_BODY,
}
READABLE = {
    "duplicate keys": b'{"model": "a", "n": 8, "model": "tiny", "n": 1, "messages": [], "messages": []}',
    "no model": json.dumps({"messages": CHAT_FIELDS["messages"]}).encode(),
    "a model that is a number": chat(model=17),
    "a model of 10 KB": chat(model="m" * 10_240),
    "a model of control characters": chat(model="\x01\n\x7f\u2028"),
    "an empty model": chat(model=""),
    "an unknown role": chat(messages=[{"role": "\u0000prophet", "content": "Hello"}]),
    "huge integers": chat(max_tokens=10**400, n=10**400, seed=-(10**400)),
    "numbers out of range": chat(max_tokens=-1, n=0, temperature=1e308, min_tokens=2**64),
    "NaN": chat(temperature=float("nan"), top_p=float("inf")),
    "a lone surrogate": b'{"model": "\\ud800", "messages": [{"role": "user", "content": "\\udfff \\ud83d"}]}',
    "a byte order mark": b"\xef\xbb\xbf" + CHAT_BODY,
    "fields of other types": chat(stream="maybe", stop=17, tools="none", response_format=[], user={}),
    "deep where it does not matter": chat(metadata=json.loads("[" * 200 + "]" * 200)),
    "no content": chat(messages=[{"role": "user"}, {"role": "assistant", "content": None}]),
    "many turns": chat(messages=[{"role": "user", "content": "x"}] * 20_000),
}


def judge(call: Call) -> None:
    """The engine's own answer to nonsense."""
    call.answer(b'{"error": {"message": "no sense"}}', status=400)


async def expect_engine_s_answer(stack: PuppetStack, body: bytes, *, path: str = CHAT, content_type: str) -> None:
    """The engine gets the very bytes, the client the engine's answer, and the only slot comes back."""
    async with stack.http.post(path, data=body, headers={"content-type": content_type}) as response:
        assert (response.status, await response.read()) == (400, b'{"error": {"message": "no sense"}}')
    assert stack.engine.calls[-1].body == body
    await stack.service.until("pool_in_flight", 0)


async def expect_sound(stack: PuppetStack, count: int) -> None:
    """Each of `count` requests has met the engine, been decided and been settled; no fault of ours showed."""
    assert len(stack.engine.calls) == count
    lines = await stack.service.requests(count)
    assert {line["ending"] for line in lines} == {"bad_request"}
    assert {line["decision"] for line in lines} <= {"admit", "pass"}
    assert await stack.service.metric("decisions_total") == count
    await stack.assert_sound()


async def test_bodies_that_cannot_be_read(puppet: PuppetStackFactory) -> None:
    """They pass at a default cost, one counted for each, one after the other through a single slot."""
    stack = await puppet(policy=REFUSE_ALL_ELSE)
    stack.engine.script = judge
    for name, body in UNREADABLE.items():
        await expect_engine_s_answer(stack, body, content_type="application/json")
        assert await stack.service.metric("default_cost_total", why="malformed_body") == len(stack.engine.calls), name
    await expect_sound(stack, len(UNREADABLE))


async def test_bodies_that_are_odd(puppet: PuppetStackFactory) -> None:
    """Whatever a Python engine might take is read for its cost, and passes unchanged."""
    stack = await puppet(policy={"tidegate-queue-len-max": "0"})
    stack.engine.script = judge
    for name, body in READABLE.items():
        await expect_engine_s_answer(stack, body, content_type="application/json")
        assert await stack.service.metric("default_cost_total") == 0, name
    await expect_engine_s_answer(stack, CHAT_BODY, path=f"{CHAT}?a=%00&b=\u00fc", content_type="text/plain")
    await expect_engine_s_answer(stack, CHAT_BODY, content_type="multipart/form-data")
    await expect_sound(stack, len(READABLE) + 2)


async def test_bodies_of_no_length(puppet: PuppetStackFactory) -> None:
    """An empty body passes, whether its length is stated, its one chunk is empty, or it comes as an empty frame."""
    stack = await puppet(policy=REFUSE_ALL_ELSE)
    stack.engine.script = judge
    await expect_engine_s_answer(stack, b"", content_type="application/json")
    chunked = f"POST {CHAT} HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    assert await raw_http(stack, chunked.encode()) == b"HTTP/1.1 400 Bad Request"
    async with H2Client(stack.url) as client:
        assert await client.until_ended(client.post(CHAT, b"")) == 400
    await stack.service.until("pool_in_flight", 0)
    await expect_sound(stack, 3)


async def test_trailers_and_expect_continue(puppet: PuppetStackFactory) -> None:
    """A request with trailers is decided on its body; one that expects 100 Continue gets it, and then its answer."""
    stack = await puppet(policy=REFUSE_ALL_ELSE)
    stack.engine.script = judge
    async with H2Client(stack.url) as client:
        stream = client.post(CHAT, CHAT_BODY, trailers=[("x-checksum", "17")])
        assert await client.until_ended(stream) == 400
    assert stack.engine.calls[-1].body == CHAT_BODY
    await stack.service.until("pool_in_flight", 0)
    async with stack.http.post(CHAT, data=CHAT_BODY, expect100=True) as response:
        assert response.status == 400
    assert await stack.service.metric("decisions_total", decision="admit", reason="capacity") == 2
    await expect_sound(stack, 2)


async def test_headers_that_make_no_sense(puppet: PuppetStackFactory) -> None:
    """Names of tenants and timeouts of any bytes and length: odd ones are ignored or cut, none breaks anything."""
    stack = await puppet(policy=REFUSE_ALL_ELSE | {"tidegate-tenant-from": "header:x-tenant"})
    stack.engine.script = judge
    odd = (
        b"x-tenant: \xff\xfe\xc3(", b"x-tenant: " + b"t" * 10_240, b"x-tenant: a\r\nx-tenant: b", b"x-tenant:",
        b"x-stainless-read-timeout: NaN", b"x-stainless-read-timeout: -1", b"x-stainless-timeout: 1e99",
        b"x-request-timeout: " + b"9" * 10_240, b"grpc-timeout: 500ms\r\ngrpc-timeout: \xd9\xa3S",
    )  # fmt: skip
    for header in odd:
        head = f"POST {CHAT} HTTP/1.1\r\nhost: a\r\ncontent-length: {len(CHAT_BODY)}\r\n".encode()
        assert await raw_http(stack, head + header + b"\r\n\r\n" + CHAT_BODY) == b"HTTP/1.1 400 Bad Request"
        await stack.service.until("pool_in_flight", 0)
    assert await stack.service.metric("ignored_headers_total") == 5
    await expect_sound(stack, len(odd))


async def test_what_is_not_inference_is_left_alone(puppet: PuppetStackFactory) -> None:
    """Model lists, OPTIONS and HEAD reach the engine whatever the load, and take no slot."""
    stack = await puppet(policy=REFUSE_ALL_ELSE)
    running = stack.ask()
    call = await stack.engine.call()
    stack.engine.script = judge
    for method, path in (("GET", "/v1/models"), ("OPTIONS", CHAT), ("HEAD", CHAT), ("DELETE", CHAT)):
        async with stack.http.request(method, path) as response:
            assert response.status == 400
    assert await stack.service.metric("pool_in_flight") == 1
    assert await stack.service.metric("decisions_total", decision="pass") == 3
    call.complete()
    assert (await running).status == 200
    await stack.assert_sound()


async def raw_http(stack: PuppetStack, request: bytes) -> bytes:
    """Send these bytes to the gateway; the status line of what comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(stack.url).port)
    writer.write(request)
    line = await asyncio.wait_for(reader.readline(), 5.0)
    writer.close()
    await writer.wait_closed()
    return line.rstrip()
