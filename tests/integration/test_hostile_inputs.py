"""What clients and networks do to a gateway: streams cut anywhere, messages out of order, bodies that make no sense."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.integration.conftest import PuppetStackFactory, RawServiceFactory
from tests.integration.h2_client import H2Client
from tests.integration.puppet_engine import Call
from tests.integration.puppet_stack import ONE_SLOT, REFUSE_ALL_ELSE, PuppetStack
from tests.integration.raw_envoy import CHAT, CHAT_BODY, RawEnvoy, RawExchange
from tests.integration.running_service import RunningService

pytestmark = pytest.mark.envoy

STREAM_BODY = CHAT_BODY.replace(b"{", b'{"stream": true, ', 1)
RAW_ONE_SLOT = {"tidegate-slots-max": "1", "tidegate-queue-len-max": "1"}


async def after_two_chunks(stack: PuppetStack, client: H2Client) -> None:
    """A streams two chunks, then its client resets the stream."""
    stream = client.post(CHAT, STREAM_BODY)
    call = await stack.engine.call()
    call.event()
    call.event()
    await client.until_data(stream, b"data: ", times=2)
    client.reset(stream)


async def before_the_headers(stack: PuppetStack, client: H2Client) -> None:
    """A is at the engine, which has not said anything, when its client resets the stream."""
    stream = client.post(CHAT, STREAM_BODY)
    await stack.engine.call()
    client.reset(stream)


async def before_any_chunk(stack: PuppetStack, client: H2Client) -> None:
    """The engine has sent A its headers and nothing else."""
    stream = client.post(CHAT, STREAM_BODY)
    call = await stack.engine.call()
    call.begin()
    await client.until_status(stream)
    client.reset(stream)


@pytest.mark.parametrize("leave", [after_two_chunks, before_the_headers, before_any_chunk])
async def test_a_reset_gives_the_only_slot_back(
    puppet: PuppetStackFactory, leave: Callable[[PuppetStack, H2Client], Awaitable[None]]
) -> None:
    """B comes 50 ms after A's reset and is admitted at once, every time, although nobody may wait here."""
    stack = await puppet(policy=REFUSE_ALL_ELSE)
    async with H2Client(stack.url) as client:
        for _ in range(3):
            stack.engine.script = None
            await leave(stack, client)
            await asyncio.sleep(0.05)  # the case itself
            stack.engine.script = Call.complete
            answer = await stack.ask()
            assert (answer.status, answer.headers.get("x-tidegate-reason")) == (200, None)
            await stack.engine.call()
            await stack.service.until("pool_in_flight", 0)
    lines = await stack.service.requests(6)
    assert [line["ending"] for line in lines] == ["client_cancelled", "complete"] * 3
    assert await stack.service.metric("decisions_total", decision="admit") == 6
    await stack.assert_sound()


async def test_a_reset_in_the_queue_gives_the_place_back(puppet: PuppetStackFactory) -> None:
    """A waits and resets its stream: B takes its place, is admitted, and A never meets the engine."""
    stack = await puppet(policy=ONE_SLOT | {"tidegate-queue-len-max": "1"})
    running = stack.ask()
    call = await stack.engine.call()
    async with H2Client(stack.url) as client:
        stream = client.post(CHAT, STREAM_BODY)
        await stack.held(1)
        client.reset(stream)
        await stack.held(0)
    waiting = stack.ask()
    await stack.held(1)
    stack.engine.script = Call.complete
    call.complete()
    assert (await running).status == (await waiting).status == 200
    assert len(stack.engine.calls) == 2
    endings = [line["ending"] for line in await stack.service.requests(3)]
    assert endings == ["client_cancelled", "complete", "complete"]
    await stack.assert_sound()


async def half_close(exchange: RawExchange) -> None:
    """The stream ends in peace."""
    await exchange.half_close()


async def cancel(exchange: RawExchange) -> None:
    """The stream ends with gRPC's CANCELLED."""
    exchange.cancel()


async def admitted(service: RunningService, envoy: RawEnvoy) -> RawExchange:
    """A request that holds the only slot."""
    exchange = envoy.exchange()
    assert (await exchange.ask()).WhichOneof("response") == "request_body"
    await service.until("pool_in_flight", 1)
    return exchange


async def waiting_for_its_body(service: RunningService, envoy: RawEnvoy) -> RawExchange:
    """A request of which only the headers have come."""
    exchange = envoy.exchange()
    await exchange.headers()
    assert (await exchange.reply()).WhichOneof("response") == "request_headers"
    await service.until("open_streams", 1)
    return exchange


async def silent(service: RunningService, envoy: RawEnvoy) -> RawExchange:
    """A stream without a single message."""
    exchange = envoy.exchange()
    await exchange.ready()
    await service.until("open_streams", 1)
    return exchange


@pytest.mark.parametrize("end", [half_close, cancel])
@pytest.mark.parametrize("begin", [admitted, waiting_for_its_body, silent])
async def test_the_end_of_a_stream_gives_back_what_it_held(
    raw_service: RawServiceFactory,
    begin: Callable[[RunningService, RawEnvoy], Awaitable[RawExchange]],
    end: Callable[[RawExchange], Awaitable[None]],
) -> None:
    """However far an exchange has come and however its stream ends, nothing of it stays behind."""
    service, envoy = await raw_service(RAW_ONE_SLOT)
    await end(await begin(service, envoy))
    await service.assert_sound()
    following = await admitted(service, envoy)
    await following.half_close()
    await service.assert_sound()


@pytest.mark.parametrize("end", [half_close, cancel])
async def test_the_end_of_a_held_stream_gives_the_place_back(
    raw_service: RawServiceFactory, end: Callable[[RawExchange], Awaitable[None]]
) -> None:
    """A held exchange whose stream ends leaves the queue at once, and never gets the slot."""
    service, envoy = await raw_service(RAW_ONE_SLOT)
    running = await admitted(service, envoy)
    held = envoy.exchange()
    await held.headers()
    await held.reply()
    await held.body()
    await service.until("pool_queue_len", 1)
    await end(held)
    await service.until("pool_queue_len", 0)
    assert await service.metric("pool_in_flight") == 1
    await running.half_close()
    await service.assert_sound()
    assert await service.metric("decisions_total") == 1


async def test_a_body_that_comes_again_is_judged_once(raw_service: RawServiceFactory) -> None:
    """The last body message twice, then an empty one: each is answered in kind, and one decision is made and booked."""
    service, envoy = await raw_service(RAW_ONE_SLOT)
    exchange = envoy.exchange()
    first = await exchange.ask()
    assert first.dynamic_metadata["admission"]["decision"] == "admit"
    await exchange.body()
    await exchange.body(b"")
    assert await exchange.kinds(2) == ["request_body", "request_body"]
    assert await service.metric("decisions_total") == 1
    assert await service.metric("pool_in_flight") == 1
    await exchange.response_trailers()
    assert await exchange.kinds(1) == ["response_trailers"]
    assert await exchange.half_close() == []
    await service.assert_sound()


async def test_a_body_that_comes_again_while_held(raw_service: RawServiceFactory) -> None:
    """The answers to repeated bodies follow the verdict, one each, and the request is booked once."""
    service, envoy = await raw_service(RAW_ONE_SLOT)
    running = await admitted(service, envoy)
    held = envoy.exchange()
    await held.headers()
    await held.reply()
    await held.body()
    await held.body()
    await held.body(b"")
    await service.until("pool_queue_len", 1)
    await running.half_close()
    assert await held.kinds(3) == ["request_body"] * 3
    assert await service.metric("pool_in_flight") == 1
    assert await service.metric("decisions_total") == 2
    assert await held.half_close() == []
    await service.assert_sound()


async def test_a_body_after_our_refusal_is_not_answered(raw_service: RawServiceFactory) -> None:
    """After an immediate response nothing more is said, and nothing more is decided or booked."""
    service, envoy = await raw_service(RAW_ONE_SLOT | {"tidegate-queue-len-max": "0"})
    running = await admitted(service, envoy)
    refused = envoy.exchange()
    await refused.headers()
    assert await refused.kinds(1) == ["immediate_response"]
    await refused.body()
    await refused.body(b"")
    await refused.response_headers(429)
    assert await refused.half_close() == []
    assert await service.metric("decisions_total", decision="reject") == 1
    assert await service.metric("decisions_total") == 2
    await running.half_close()
    await service.assert_sound()


async def test_a_stream_may_begin_anywhere(raw_service: RawServiceFactory) -> None:
    """A stream that begins with the response, a body or trailers is answered in kind; a message of no kind is not."""
    service, envoy = await raw_service(RAW_ONE_SLOT)
    beginnings: tuple[tuple[Callable[[RawExchange], Awaitable[None]], str], ...] = (
        (lambda exchange: exchange.response_headers(503), "response_headers"),
        (lambda exchange: exchange.body(), "request_body"),
        (lambda exchange: exchange.response_trailers(), "response_trailers"),
    )
    for say, kind in beginnings:
        exchange = envoy.exchange()
        await say(exchange)
        assert await exchange.kinds(1) == [kind]
        assert await exchange.half_close() == []
    unknown = envoy.exchange()
    await unknown.nothing()
    assert await unknown.half_close() == []
    assert await service.metric("decisions_total") == 0
    await service.until("open_streams", 0)
    assert await service.metric("internal_errors_total") == 0


async def test_envoy_s_own_answer_ends_a_hold(raw_service: RawServiceFactory) -> None:
    """Response headers while a request is held mean that Envoy has answered for it: its place comes back at once."""
    service, envoy = await raw_service(RAW_ONE_SLOT)
    running = await admitted(service, envoy)
    held = envoy.exchange()
    await held.headers()
    await held.reply()
    await held.body()
    await service.until("pool_queue_len", 1)
    await held.response_headers(504)
    assert await held.kinds(1) == ["response_headers"]
    await service.until("pool_queue_len", 0)
    await running.half_close()
    assert await held.half_close() == []
    await service.assert_sound()
