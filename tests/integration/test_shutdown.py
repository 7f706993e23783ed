"""SIGTERM: whoever waits gets a verdict, what runs is let run, and a second start knows what the first one knew."""

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.integration.conftest import GatedStackFactory
from tests.integration.gated_stack import GatedStack
from tests.integration.metrics_page import metrics
from tests.integration.puppet_engine import Call
from tests.integration.stack import eventually
from tidegate.sim.envoy_config import Config, ext_proc_filter

pytestmark = pytest.mark.envoy
EVENT = b'data: {"choices": [{"delta": {"content": "x"}}]}\n\n'
USAGE: dict[str, object] = {"choices": [], "usage": {"prompt_tokens": 8, "completion_tokens": 6}}
WHOLE_STREAM = EVENT * 6 + b"data: " + json.dumps(USAGE).encode() + b"\n\n" + b"data: [DONE]\n\n"


def some_events(call: Call) -> None:
    """Half of a stream."""
    for _ in range(3):
        call.event()


def the_rest(call: Call) -> None:
    """The other half, so that all is WHOLE_STREAM."""
    some_events(call)
    call.event(USAGE)
    call.end()


async def draining(stack: GatedStack) -> None:
    """Send SIGTERM and wait until it has been noticed."""
    stack.service.child.signal(signal.SIGTERM)
    await stack.service.until("draining", 1)


async def exit_code(stack: GatedStack, *, wait_s_max: float = 10.0) -> int:
    """How tidegate ends, within this time."""
    return await asyncio.wait_for(stack.service.child.wait(), wait_s_max)


async def health_status(stack: GatedStack) -> int:
    """Status of tidegate's health page."""
    async with aiohttp.ClientSession() as session, session.get(f"{stack.service.ops_url}/healthz") as response:
        return response.status


async def test_sigterm_answers_waiters_and_lets_streams_run(gated: GatedStackFactory) -> None:
    """Held requests get a 503 that says shutting_down, the stream keeps every byte, newcomers pass, exit code is 0."""
    stack = await gated()
    first = stack.ask()
    (await stack.engine.call()).complete()
    assert (await first).status == 200
    await stack.service.requests(1)  # Envoy's log stream is open from here on
    streaming, call, held = await stack.streaming_and_held(held=3)
    some_events(call)
    await draining(stack)
    for answer in await asyncio.gather(*held):
        assert answer.status == 503
        assert answer.error["code"] == "shutting_down"
        assert float(answer.headers["retry-after"]) >= 1
    newcomer = stack.ask()
    (await stack.engine.call()).complete()
    assert (await newcomer).status == 200
    assert stack.service.child.returncode is None
    the_rest(call)
    answer = await streaming
    assert (answer.status, answer.body) == (200, WHOLE_STREAM)
    assert await exit_code(stack) == 0
    endings = [line["ending"] for line in stack.service.lines()]
    assert endings == ["complete", "rejected", "rejected", "rejected", "complete"]
    assert await stack.until_counter("no_decision.code.200") == 1
    assert "Traceback" not in stack.service.child.log_text()


async def test_sigterm_with_nobody_there_ends_at_once(gated: GatedStackFactory) -> None:
    """An idle service does not wait for its grace."""
    stack = await gated()
    stack.service.child.signal(signal.SIGTERM)
    assert await exit_code(stack, wait_s_max=5.0) == 0


async def test_health_says_that_it_drains(gated: GatedStackFactory) -> None:
    """After SIGTERM a watcher of gRPC health learns NOT_SERVING and the health page is a 503; streams still run."""
    stack = await gated()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{stack.service.port}") as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=""))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        assert await health_status(stack) == 200
        streaming, call, _ = await stack.streaming_and_held(held=0)
        await draining(stack)
        reading = asyncio.ensure_future(watch.read())
        assert (await asyncio.wait_for(reading, 5.0)).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert await health_status(stack) == 503
        call.complete()
        assert (await streaming).status == 200
        assert await exit_code(stack) == 0
        watch.cancel()


async def test_metrics_page_shows_pool_and_process(gated: GatedStackFactory) -> None:
    """The page is valid Prometheus text, and its gauges say what runs, what waits and what there is."""
    stack = await gated(policy={"tidegate-kv-tokens-max": "5000"})
    streaming, _, held = await stack.streaming_and_held(held=2)
    page = await metrics(stack.service.ops_url)
    shown = {name: page.value(f"pool_{name}", pool="engine") for name in ("in_flight", "queue_len", "slots", "engines")}
    assert shown == {"in_flight": 1, "queue_len": 2, "slots": 1, "engines": 1}
    assert 0 < page.value("pool_kv_tokens", pool="engine") <= page.value("pool_kv_tokens_capacity", pool="engine")
    assert page.value("pool_kv_tokens_capacity", pool="engine") <= 5000
    assert (page.value("open_streams"), page.value("pools"), page.value("draining")) == (3, 1, 0)
    assert page.value("build_info") == 1
    stack.release()
    assert [answer.status for answer in await asyncio.gather(streaming, *held)] == [200] * 3


async def test_a_second_start_knows_the_pools_and_what_they_learned(gated: GatedStackFactory, tmp_path: Path) -> None:
    """With --state-dir, a pool is there before its first request, and predictions go on where they were."""
    stack = await gated(arguments=("--state-dir", str(tmp_path / "state")))
    stack.engine.script = lambda call: call.complete(completion_tokens=700)
    prior = await prediction(stack, 1)
    for count in range(2, 30):
        learned = await prediction(stack, count)
    assert learned > 1.5 * prior
    stack.service.child.signal(signal.SIGTERM)
    assert await exit_code(stack) == 0
    await stack.restart()
    page = await metrics(stack.service.ops_url)
    assert (page.value("pools"), page.value("pool_slots", pool="engine")) == (1, 1)
    assert page.value("pool_orphan_bookings") == 0
    assert await prediction(stack, 30) == pytest.approx(learned, rel=0.2)


async def prediction(stack: GatedStack, count: int) -> float:
    """Completion tokens predicted for one more request without a cap, the `count`th in the log."""
    assert (await stack.ask(max_tokens=None)).status == 200
    return float((await stack.service.requests(count))[-1]["predicted_tokens"])


@pytest.mark.parametrize("allow", [True, False])
async def test_past_the_grace_a_stream_runs_on_without_us(
    gated: GatedStackFactory, tmp_path: Path, allow: bool
) -> None:
    """The exit code is 0 and the stream is intact; a second start keeps its slot booked until the stream has ended."""

    def failure_mode(config: Config) -> None:
        ext_proc_filter(config)["failure_mode_allow"] = allow

    arguments = ("--state-dir", str(tmp_path / "state"), "--grace-s", "0.3")
    stack = await gated(arguments=arguments, edit=failure_mode)
    streaming, call, _ = await stack.streaming_and_held(held=0)
    some_events(call)
    stack.service.child.signal(signal.SIGTERM)
    assert await exit_code(stack) == 0
    assert not streaming.done()
    await stack.restart()
    assert await orphans(stack) == 1
    behind = stack.ask()
    await stack.held(1)
    the_rest(call)
    answer = await streaming
    assert (answer.status, answer.body) == (200, WHOLE_STREAM)
    (await stack.engine.call()).complete()
    assert (await behind).queue_ms > 0
    assert await orphans(stack) == 0
    await stack.service.assert_sound()


async def test_a_booking_taken_over_expires(gated: GatedStackFactory, tmp_path: Path) -> None:
    """A booking from before a restart whose end nobody reports is given back once its client must have given up."""
    arguments = ("--state-dir", str(tmp_path / "state"), "--grace-s", "0.1")
    stack = await gated(arguments=arguments, policy={"tidegate-client-timeout-ms": "3000"})
    streaming, call, _ = await stack.streaming_and_held(held=0)
    stack.service.child.signal(signal.SIGTERM)
    assert await exit_code(stack) == 0
    await stack.restart()
    assert await orphans(stack) == 1
    await eventually(lambda: orphans(stack), lambda seen: seen == 0, what="the booking's end")
    assert not streaming.done()
    call.complete()
    assert (await streaming).status == 200


async def orphans(stack: GatedStack) -> Any:
    """Bookings from before the restart."""
    return await stack.service.metric("pool_orphan_bookings", pool="engine")
