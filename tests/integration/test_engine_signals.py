"""What engines say of themselves reaches the decisions, through the real Envoy; and no page stops a pool."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from tests.integration.conftest import factory
from tests.integration.metrics_page import metrics
from tests.integration.signals_stack import PageServer, SignalsStack, signals_stack
from tests.integration.stack import eventually

pytestmark = pytest.mark.envoy

SignalsStackFactory = Callable[..., Awaitable[SignalsStack]]
VLLM_PAGE = """\
vllm:num_requests_running{engine="0",model_name="m"} 0.0
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.0
"""


@pytest.fixture
async def signals(tmp_path: Path) -> AsyncIterator[SignalsStackFactory]:
    """Starts engines, tidegate and Envoy: `await signals(engines=2)`; arguments as of `signals_stack`."""
    async with factory(signals_stack, tmp_path) as start:
        yield start


async def ask(stack: SignalsStack) -> int:
    """One small chat; its status."""
    async with stack.chat(max_tokens=1) as response:
        await response.read()
        return int(response.status)


@pytest.mark.parametrize("steer", ["on", "off"])
async def test_readings_reach_the_gauges(signals: SignalsStackFactory, steer: str) -> None:
    """The pool has the slots that are stated and the KV tokens that its engines say; nothing is stale, and nobody is
    taken for a stranger.
    """
    policy = {"tidegate-steer": steer, "tidegate-slots-max": "4"}
    arguments = ("--slots", "4", "--kv-tokens", "32000")
    stack = await signals(engines=2, engine_arguments=arguments, policy=policy)
    assert await ask(stack) == 200
    await stack.service.until("pool_kv_tokens_capacity", 64_000.0, wait_s_max=20.0)  # once the ramp is over
    for engine in stack.engines:
        await stack.service.until("engine_running", 0, engine=engine)
        assert await stack.service.metric("engine_ready", engine=engine) == 1
    assert await stack.service.metric("pool_engines") == 2
    for name in ("pool_engines_stale", "pool_foreign_sequences", "pool_foreign_found_total", "pool_gone_sequences"):
        assert await stack.service.metric(name) == 0, name
    page = await metrics(stack.service.ops_url)
    assert page.value("polls_total", end="read") == page.value("polls_total") > 0


async def test_traffic_past_envoy_takes_slots_and_gives_them_back(signals: SignalsStackFactory) -> None:
    """Three of four slots go to somebody else: seen within seconds, counted, no room for two more requests; gone with
    them.
    """
    policy = {"tidegate-slots-max": "4", "tidegate-queue-len-max": "0"}
    stack = await signals(engine_arguments=("--slots", "4", "--kv-tokens", "32000"), policy=policy)
    assert await ask(stack) == 200
    await stack.service.until("pool_slots", 4, wait_s_max=20.0)
    strangers = [await stack.past_envoy(stack.engines[0], tokens=2000) for _ in range(3)]
    await stack.service.until("pool_foreign_sequences", 3)
    await stack.service.until("pool_slots", 1)
    assert await stack.service.metric("pool_utilisation_slots") == 0.75
    async with stack.chat(stream=True, max_tokens=2000, ignore_eos=True) as ours:
        assert ours.status == 200
        async with stack.chat(max_tokens=1) as refused:
            assert refused.status == 429
            assert refused.headers["x-tidegate-reason"].startswith("queue_full")
    for task in strangers:
        task.cancel()
    await stack.service.until("pool_foreign_sequences", 0)
    await stack.service.until("pool_slots", 4)
    assert await stack.service.metric("pool_foreign_found_total") == 3
    assert await ask(stack) == 200


PAGES: dict[str, tuple[Callable[[], web.Response], str]] = {
    "nan": (lambda: web.Response(text=VLLM_PAGE.replace("0.0", "NaN")), "half_page"),
    "negative": (lambda: web.Response(text=VLLM_PAGE.replace("0.0", "-1.0")), "half_page"),
    "missing": (lambda: web.Response(text="vllm:num_requests_running 1.0\n"), "half_page"),
    "500": (lambda: web.Response(status=500), "status"),
    "20 MB": (lambda: web.Response(body=VLLM_PAGE.encode() + b"# \n" * 7_000_000), "too_large"),
    "redirect": (lambda: web.Response(status=302, headers={"location": "http://169.254.169.254/"}), "redirect"),
    "not text": (lambda: web.Response(body=bytes(range(256)) * 64), "half_page"),
}


@pytest.mark.parametrize("kind", PAGES)
async def test_a_bad_page_leaves_the_pool_serving(signals: SignalsStackFactory, kind: str) -> None:
    """C4: it is counted by its cause, every request is answered, and nothing breaks."""
    async with PageServer() as server:
        server.answer, cause = PAGES[kind]
        stack = await signals(metrics=server.url)
        assert await ask(stack) == 200

        async def failed() -> float:
            return await stack.service.metric("polls_total", end=cause)

        await eventually(failed, lambda polls: bool(polls >= 1), what=f"a poll that ends as {cause}")
        assert [await ask(stack) for _ in range(5)] == [200] * 5
        assert await stack.service.metric("engine_ready") == 0  # there is no such series: it was never read
        await stack.service.assert_sound()


async def test_closed_shuts_and_one_reading_opens(signals: SignalsStackFactory) -> None:
    """C4: four seconds after the last page the gauge shows the engine and requests get a 503; one page, and they are
    served.
    """
    async with PageServer() as server:
        server.answer = lambda: web.Response(text=VLLM_PAGE)
        policy = {"tidegate-stale": "closed", "tidegate-stale-ms": "4000", "tidegate-hold-ms-max": "0"}
        stack = await signals(metrics=server.url, policy=policy)
        assert await ask(stack) == 200
        await stack.service.until("engine_ready", 1)
        server.answer = lambda: web.Response(status=500)
        await stack.service.until("pool_engines_stale", 1)
        async with stack.chat(max_tokens=1) as refused:
            assert refused.status == 503
            assert refused.headers["x-tidegate-reason"].startswith("no_engine")
        server.answer = lambda: web.Response(text=VLLM_PAGE)
        await stack.service.until("pool_engines_stale", 0)
        assert await ask(stack) == 200


async def test_an_engine_of_another_kind_than_stated(signals: SignalsStackFactory) -> None:
    """vLLM read as SGLang gives half pages: the pool runs on its own books, and gauges say so."""
    stack = await signals(policy={"tidegate-engine": "sglang"})
    assert await ask(stack) == 200
    await stack.service.until("pool_engines_stale", 1)
    assert await stack.service.metric("polls_total", end="half_page") >= 2
    assert await stack.service.metric("polls_total", end="read") == 0
    assert await asyncio.gather(*(ask(stack) for _ in range(5))) == [200] * 5


async def test_a_page_that_may_not_be_asked_for(signals: SignalsStackFactory) -> None:
    """An address outside --engine-allow, such as a metadata service, is never connected to."""
    stack = await signals(metrics="http://169.254.169.254/metrics")
    assert await ask(stack) == 200

    async def forbidden() -> float:
        return await stack.service.metric("polls_total", end="forbidden")

    await eventually(forbidden, lambda polls: bool(polls >= 1), what="a poll that is not allowed")
    assert await stack.service.metric("polls_total") == await forbidden()
