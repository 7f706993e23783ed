"""When a part is gone: tidegate killed, with the filter failing open or closed; Envoy stopped; the kill switch."""

import asyncio
import signal

import pytest

from tests.integration.conftest import GatedStackFactory
from tests.integration.gated_stack import GatedStack
from tests.integration.puppet_engine import Call
from tidegate.sim.envoy_config import Config, ext_proc_filter

pytestmark = pytest.mark.envoy
SLOTS_BACK_S_MAX = 15.0


def fail_closed(config: Config) -> None:
    """Without a service no request passes."""
    ext_proc_filter(config)["failure_mode_allow"] = False


async def decided_again(stack: GatedStack) -> None:
    """Fails unless a request is now decided by tidegate; Envoy may need a moment to connect to it."""
    answer = await stack.ask()
    assert (answer.status, answer.queue_ms) == (200, 0)
    assert await stack.service.metric("decisions_total", decision="admit") == 1


async def test_killed_with_50_requests_all_reach_the_engine(gated: GatedStackFactory) -> None:
    """Failing open, a killed service costs nobody an answer: those that ran go on, those that waited go at once."""
    stack = await gated()
    streaming, call, held = await stack.streaming_and_held(held=49)
    call.event()
    await stack.kill()
    await stack.at_engine(50)
    stack.release()
    assert [answer.status for answer in await asyncio.gather(streaming, *held)] == [200] * 50
    assert streaming.result().body.endswith(b"data: [DONE]\n\n")
    # All 50 streams to the service broke; 49 of them had no verdict yet.
    assert await stack.until_counter("ext_proc.admission.failure_mode_allowed", 49) <= 50
    assert await stack.until_counter("no_decision.code.200", 49) == 49
    await stack.restart()
    await decided_again(stack)


async def test_killed_and_failing_closed_is_a_503_that_clients_understand(gated: GatedStackFactory) -> None:
    """Failing closed, requests that waited and requests that come get a JSON 503; afterwards decisions resume."""
    stack = await gated(edit=fail_closed)
    running = stack.ask()
    await stack.at_engine(1)
    held = [stack.ask() for _ in range(3)]
    await stack.held(3)
    await stack.kill()
    for answer in await asyncio.gather(running, *held, stack.ask()):
        assert answer.status == 503
        assert answer.headers["retry-after"] == "1"
        assert answer.headers["content-type"].startswith("application/json")
        assert answer.error["code"] == "admission_unavailable"
    await stack.at_engine(1)
    assert await stack.counter("ext_proc.admission.failure_mode_allowed") == 0
    stack.engine.script = Call.complete
    await stack.restart()
    await decided_again(stack)


async def test_a_stopped_envoy_loses_its_slots(gated: GatedStackFactory) -> None:
    """A peer that no longer answers gives back what it holds within 15 s, and is served again once it is back."""
    stack = await gated(policy={"tidegate-slots-max": "8"})
    streaming = [stack.ask(stream=True) for _ in range(2)]
    calls = [await stack.engine.call() for _ in streaming]
    for call in calls:
        call.begin()
    await stack.service.until("pool_in_flight", 2)
    stack.envoy.signal(signal.SIGSTOP)
    try:
        await stack.service.until("pool_in_flight", 0, wait_s_max=SLOTS_BACK_S_MAX)
        assert await stack.service.metric("open_streams") == 0
    finally:
        stack.envoy.signal(signal.SIGCONT)
    stack.release()
    for answer in await asyncio.gather(*streaming):
        assert answer.status == 200
        assert answer.body.endswith(b"data: [DONE]\n\n")
    assert (await stack.ask()).queue_ms == 0
    await stack.service.assert_sound()


async def test_the_kill_switch_takes_tidegate_out(gated: GatedStackFactory) -> None:
    """One runtime call sends requests past a full pool at once, what is held stays held, and one call undoes it."""
    stack = await gated()
    streaming, _, held = await stack.streaming_and_held(held=1)
    await stack.admin.runtime_modify(**{"admission.bypass_percent": "100"})
    past = stack.ask()
    (await stack.engine.call()).complete()
    answer = await past
    assert answer.status == 200
    assert "x-tidegate-queue-ms" not in answer.headers
    assert await stack.service.metric("pool_queue_len") == 1
    assert await stack.until_counter("vhost.engine.route.bypass.upstream_rq_total") == 1
    await stack.admin.runtime_modify(**{"admission.bypass_percent": ""})
    held.append(stack.ask())
    await stack.held(2)
    stack.release()
    assert [answer.status for answer in await asyncio.gather(streaming, *held)] == [200] * 3
    assert await stack.counter("no_decision") == 0
