"""Usage asked for and usage inferred, and what requests cost, through the real Envoy."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.integration.conftest import PuppetStackFactory, StackFactory
from tests.integration.h2_client import H2Client
from tests.integration.metrics_page import metrics
from tests.integration.puppet_engine import Call
from tests.integration.puppet_stack import ONE_SLOT, PuppetStack
from tests.integration.stack import Stack, eventually

pytestmark = pytest.mark.envoy

ASK: dict[str, str | None] = {"tidegate-ask-usage": "on"}
PATH = "/v1/chat/completions"
PLAIN = b'{ "model":"tiny","stream" : true,\n"max_tokens":3,"messages":[{"role":"user","content":"h\\u00e9 \xc3\xa9"}]}'
MEMBER = b'"stream_options":{"include_usage":true}'


def complete(call: Call) -> None:
    """Stream as engines do: the usage comes only where it was asked for."""
    call.event()
    if b'"include_usage":true' in call.body:
        call.event({"choices": [], "usage": {"prompt_tokens": 8, "completion_tokens": 3}})
    call.end()


async def post(stack: PuppetStack, body: Any, **headers: str) -> tuple[int, bytes]:
    """Send these very bytes; chunked where they come from an iterator. The status and the answer."""
    async with stack.http.post(PATH, data=body, headers={"content-type": "application/json"} | headers) as response:
        return response.status, await response.read()


async def test_the_engine_is_asked_for_usage(puppet: PuppetStackFactory) -> None:
    """The member arrives in front, the rest byte for byte, the length is right, and the usage is in the outcome."""
    stack = await puppet(policy=ASK)
    stack.engine.script = complete
    for body in (PLAIN, b"\xef\xbb\xbf \n" + PLAIN, PLAIN.replace(b"h", b"h" * 300_000, 1)):
        status, answer = await post(stack, body)
        assert status == 200
        assert b'"choices": []' in answer
        call = stack.engine.calls[-1]
        brace = body.index(b"{") + 1
        assert call.body == body[:brace] + MEMBER + b"," + body[brace:]
        assert call.headers["content-length"] == str(len(call.body))
        assert "transfer-encoding" not in call.headers
    for line in await stack.service.requests(3):
        assert (line["prompt_tokens"], line["completion_tokens"], line["ending"]) == (8, 3, "complete")
        assert "inferred" not in line
    await stack.assert_sound()


async def test_chunked_and_http2_bodies_are_asked_too(puppet: PuppetStackFactory) -> None:
    """A request without a content-length gets the right one with its new body, trailers or not."""
    stack = await puppet(policy=ASK)
    stack.engine.script = complete

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(PLAIN), 40):
            yield PLAIN[at : at + 40]

    assert (await post(stack, pieces()))[0] == 200
    async with H2Client(stack.url) as client:
        for trailers in ((), (("x-checksum", "1"),)):
            stream = client.post(PATH, PLAIN, trailers=trailers)
            assert await client.until_ended(stream) == 200
            assert b'"choices": []' in client.data[stream]
    assert len(stack.engine.calls) == 3
    for call in stack.engine.calls:
        assert call.body == PLAIN.replace(b"{", b"{" + MEMBER + b",", 1)
    await stack.assert_sound()


async def test_a_held_request_is_asked_when_its_turn_comes(puppet: PuppetStackFactory) -> None:
    """The verdict comes later; the body that goes on is the new one all the same."""
    stack = await puppet(policy=ASK | ONE_SLOT)
    running = stack.ask()
    first = await stack.engine.call()
    held = stack.ask(stream=True)
    await stack.held(1)
    stack.engine.script = complete
    first.complete()
    assert (await running).status == (await held).status == 200
    assert MEMBER in stack.engine.calls[-1].body
    assert MEMBER not in first.body
    await stack.assert_sound()


@pytest.mark.parametrize(
    "body",
    [
        PLAIN.replace(b'"stream" : true', b'"stream" : false'),
        PLAIN.replace(b"{", b'{"stream_options":{"include_usage":false},', 1),
        PLAIN.replace(b"{", b'{"stream_options":null,', 1),
        b'{"stream": true, "messages": [}',
        b"[]",
    ],
)
async def test_a_body_that_is_not_to_be_asked_stays_as_it_is(puppet: PuppetStackFactory, body: bytes) -> None:
    """A whole answer, a caller's own word on usage and a body that is no request: not a byte is touched."""
    stack = await puppet(policy=ASK)
    stack.engine.script = lambda call: call.complete()
    assert (await post(stack, body))[0] == 200
    assert stack.engine.calls[-1].body == body


async def test_nobody_is_asked_by_default(puppet: PuppetStackFactory) -> None:
    """Without the key a body is untouched, byte for byte, and its client sees no chunk more."""
    stack = await puppet()
    stack.engine.script = complete
    status, answer = await post(stack, PLAIN)
    assert (status, stack.engine.calls[-1].body) == (200, PLAIN)
    assert b"usage" not in answer
    (line,) = await stack.service.requests(1)
    assert "completion_tokens" not in line
    assert await stack.service.metric("unlearned_total", why="no_usage") == 1


async def streamed(stack: Stack, tokens: int, **fields: Any) -> None:
    """A stream of exactly so many tokens."""
    async with stack.chat(stream=True, max_tokens=tokens, ignore_eos=True, **fields) as response:
        assert response.status == 200
        await response.read()


async def finished(stack: Stack, count: int) -> list[dict[str, Any]]:
    """The log lines of finished requests, once there are so many."""

    async def read() -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in stack.tidegate.log_text().split("\n")[:-1]]
        return [line for line in lines if line["event"] == "request"]

    lines: list[dict[str, Any]] = await eventually(read, lambda seen: len(seen) == count, what=f"{count} lines")
    return lines


@pytest.mark.parametrize("chunk_tokens", [1, 4])
async def test_tokens_are_inferred_within_a_tenth(stack: StackFactory, chunk_tokens: int) -> None:
    """After some streams that tell, those that do not are counted from bytes: to a tenth, or to one event's tokens."""
    running = await stack(engine_arguments=["--chunk-tokens", str(chunk_tokens)])
    for tokens in range(12, 60, 4):
        await streamed(running, tokens, stream_options={"include_usage": True})

    async def reported() -> float:
        return (await metrics(running.ops_url)).value("usage_total", source="reported")

    await eventually(reported, lambda count: bool(count == 12), what="12 reports taken in")
    truth = (10, 25, 40, 90)
    for number, tokens in enumerate(truth, start=13):
        await streamed(running, tokens)
        seen = await finished(running, number)
        assert seen[-1]["inferred"] is True
        assert seen[-1]["completion_tokens"] == pytest.approx(
            tokens, rel=0.1, abs=chunk_tokens if chunk_tokens > 1 else 0
        )
    page = await metrics(running.ops_url)
    assert page.value("usage_total", source="inferred") == len(truth)
    assert page.value("unlearned_total", why="inferred") == len(truth) / 2
    assert not [line for line in seen[:12] if "inferred" in line]


async def test_token_prices_become_dollars(puppet: PuppetStackFactory) -> None:
    """Expected nano-dollars are a counter of Envoy by tenant, model and decision; what it cost is tidegate's."""
    prices: dict[str, str | None] = {
        "tidegate-price-prompt-usd": "0.001",
        "tidegate-price-completion-usd": "0.002",
        "tidegate-tenant-from": "header:x-tenant",
    }
    stack = await puppet(policy=prices)
    stack.engine.script = lambda call: call.complete(prompt_tokens=9, completion_tokens=5)
    for streamed in (False, True):
        assert (await stack.ask(stream=streamed, headers={"x-tenant": "acme"}, max_tokens=50)).status == 200
    lines = await stack.service.requests(2)
    expected = round(sum(line["predicted_cost_usd"] for line in lines) * 1e9)
    assert expected > 2 * 2000
    name = "admission.predicted_cost_nanousd.tenant.acme.model.tiny.decision.admit"
    assert await stack.until_counter(name, expected) == expected
    assert [line["cost_usd"] for line in lines] == [19_000e-9] * 2
    cost = await stack.service.metric("cost_usd_total", pool="engine", tenant="acme", model="tiny")
    assert cost == pytest.approx(38_000e-9)
    await stack.assert_sound()


async def test_an_engines_hour_becomes_dollars(puppet: PuppetStackFactory) -> None:
    """At a million dollars an hour every nano-dollar of the expectation still arrives in Envoy's counter."""
    stack = await puppet(policy={"tidegate-price-engine-hour-usd": "1000000"})
    stack.engine.script = lambda call: call.complete(prompt_tokens=9, completion_tokens=5)
    assert (await stack.ask("/v1/chat/completions", max_tokens=5000)).status == 200
    assert (await stack.ask("/pooling")).status == 200
    chat, other = await stack.service.requests(2)
    for line in (chat, other):
        assert 0 < line["cost_usd"] < line["predicted_cost_usd"]
    expected = round((chat["predicted_cost_usd"] + other["predicted_cost_usd"]) * 1e9)
    assert expected > 10**9
    assert await stack.until_counter("admission.predicted_cost_nanousd", expected) == expected
    assert await stack.service.metric("cost_usd_total") == pytest.approx(chat["cost_usd"] + other["cost_usd"])
    await stack.assert_sound()


async def test_without_a_price_there_is_no_cost(puppet: PuppetStackFactory) -> None:
    """Neither counter exists, and Envoy's log has nothing to say about the value that is missing."""
    stack = await puppet()
    stack.engine.script = lambda call: call.complete()
    assert (await stack.ask()).status == 200
    (line,) = await stack.service.requests(1)
    assert not [name for name in line if "usd" in name]
    assert await stack.counter("predicted_cost_nanousd") == 0
    assert await stack.service.metric("cost_usd_total") == 0
    await stack.assert_sound()
