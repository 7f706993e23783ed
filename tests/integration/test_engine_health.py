"""What engines answer decides how much they get: seen through the real Envoy, which tells it in its access log."""

import pytest

from tests.integration.conftest import PuppetStackFactory
from tests.integration.puppet_engine import Call
from tests.integration.puppet_stack import PuppetStack

pytestmark = pytest.mark.envoy
NO_WAIT: dict[str, str | None] = {"tidegate-queue-len-max": "0"}


def busy(call: Call) -> None:
    """An engine that holds as much as it will."""
    call.answer(b'{"error": {"message": "busy"}}', status=429)


def broken(call: Call) -> None:
    """An engine with a fault of its own."""
    call.answer(b'{"error": {"message": "broken"}}', status=500)


async def full_share(stack: PuppetStack) -> None:
    """Wait until the ramp after the start is over: only then does the share speak of the engine alone."""
    stack.engine.script = Call.complete
    assert (await stack.ask()).status == 200
    await stack.service.until("pool_ramp_share", 1.0, wait_s_max=15.0)


async def test_an_engine_that_refuses_gets_half_and_recovers(puppet: PuppetStackFactory) -> None:
    """A 429 of the engine halves its share, a second one within the second changes nothing, and it comes back to 1."""
    stack = await puppet()
    await full_share(stack)
    stack.engine.script = busy
    assert {(await stack.ask()).status for _ in range(2)} == {429}
    await stack.service.until("outcomes_total", 2, ending="engine_refused")
    assert 0.5 <= await stack.service.metric("pool_ramp_share") < 1.0
    stack.engine.script = Call.complete
    assert (await stack.ask()).status == 200
    await stack.service.until("pool_ramp_share", 1.0, wait_s_max=15.0)
    await stack.assert_sound()


async def test_errors_alone_never_close_a_pool(puppet: PuppetStackFactory) -> None:
    """However often a client provokes a 500, the only engine goes on getting requests, with a quarter of its limits."""
    stack = await puppet()
    await full_share(stack)
    stack.engine.script = broken
    assert [(await stack.ask()).status for _ in range(6)] == [500] * 6
    await stack.service.until("outcomes_total", 6, ending="engine_failed")
    assert await stack.service.metric("pool_ramp_share") >= 0.25
    stack.engine.script = Call.complete
    assert (await stack.ask()).status == 200
    assert len(stack.engine.calls) == 8
    await stack.assert_sound()


async def test_an_engine_that_cannot_be_reached_is_down_and_tried_again(puppet: PuppetStackFactory) -> None:
    """After a connect failure requests are refused as `no_engine`; once it listens again they are served."""
    stack = await puppet(policy=NO_WAIT)
    await full_share(stack)
    await stack.engine.hang_up()
    assert (await stack.ask()).status == 503
    await stack.service.until("outcomes_total", 1, ending="engine_failed")
    assert await stack.service.metric("pool_engines_down") == 1
    refused = await stack.ask()
    assert (refused.status, refused.error["code"]) == (503, "no_engine")
    await stack.engine.listen()
    await stack.service.until("pool_engines_down", 0)
    assert (await stack.ask()).status == 200
    await stack.assert_sound()
