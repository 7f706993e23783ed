"""The real Ray Serve with an application that speaks the OpenAI API: two requests at once, two in its own queue."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.engines.environments import engine_python
from tests.engines.running_engine import Engine, Policy, Start, running
from tidegate.sim.processes import free_ports

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

POLICY: Policy = {
    "tidegate-slots-max": "2",
    "tidegate-queue-len-max": "1",
    "tidegate-ttft-budget-ms": "60000",
}
LONG: dict[str, Any] = {"stream": True, "max_tokens": 3000}
"""Half a minute."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    """The engine, whose page is the node's."""
    python = engine_python("ray", "ray[serve]==2.60.0")
    http, metrics = free_ports(2)
    command = [str(python), str(Path(__file__).with_name("ray_program.py")), str(http), str(metrics)]
    ray = Engine(kind="ray-serve", address=f"127.0.0.1:{http}", page_url=f"http://127.0.0.1:{metrics}/metrics")
    folder = tmp_path_factory.mktemp("ray")
    async with running(ray, command, ready_path="/ready", log_dir=folder, env={"RAY_USAGE_STATS_ENABLED": "0"}):
        yield ray


async def test_answers_are_admitted_and_learned_from(start: Start) -> None:
    """Streams and whole answers pass, and what is predicted comes down to the twenty tokens that they use."""
    stack = await start(POLICY)
    for _ in range(24):
        assert (await stack.whole(max_tokens=500, answer=20)).completion_tokens == 20
    assert (await stack.streamed(max_tokens=500, answer=20)).completion_tokens == 20
    lines = await stack.service.requests(25)
    assert [line["completion_tokens"] for line in lines] == [20] * 25
    assert await stack.until_counter("admission.completion_tokens_total", 500) == 500
    first, last = lines[0]["predicted_tokens"], lines[-1]["predicted_tokens"]
    print(f"\npredicted {first} tokens at first, {last} in the end")
    assert last < first / 2
    assert last < 60
    await stack.service.assert_sound()


async def test_one_waits_the_next_is_refused_and_who_leaves_makes_room(start: Start) -> None:
    """Behind two that run one is held here and none waits in Ray; another gets a 429; who leaves makes room."""
    stack = await start(POLICY)
    await stack.whole(max_tokens=1)
    await stack.service.until("pool_ramp_share", 1, wait_s_max=30.0)
    long = [stack.ask(**LONG) for _ in range(2)]
    await stack.until_engine_runs(2)
    held = stack.ask(max_tokens=5)
    await stack.service.until("pool_queue_len", 1)
    refused = await stack.ask(max_tokens=5)
    assert (refused.status, refused.error["code"]) == (429, "queue_full")
    await stack.until_engine_runs(2, waiting=0)
    long[0].cancel()
    answer = await held
    assert (answer.status, answer.queue_ms > 0) == (200, True)
    await stack.until_engine_runs(1)
    await stack.service.until("outcomes_total", 1, ending="client_cancelled")
    long[1].cancel()
    await stack.until_engine_runs(0)
    await stack.service.assert_sound()


async def test_the_engine_drops_a_burst_that_tidegate_holds(start: Start) -> None:
    """Eight at once: Ray alone drops those beyond its queue with a 503; with tidegate in front all eight are served."""
    stack = await start(POLICY | {"tidegate-queue-len-max": "8"})
    alone = await asyncio.gather(*(stack.ask(past_envoy=True, max_tokens=30) for _ in range(8)))
    dropped = [answer for answer in alone if answer.status == 503]
    assert dropped
    assert b"backpressure" in dropped[0].body
    served = await asyncio.gather(*(stack.ask(max_tokens=30) for _ in range(8)))
    assert [answer.status for answer in served] == [200] * 8
    print(f"\nalone {len(dropped)} of 8 are dropped; with tidegate the last waits {max(a.queue_ms for a in served)} ms")
    await stack.service.until("outcomes_total", 8, ending="complete")
    await stack.service.assert_sound()
