"""The real NVIDIA Triton with a model that has no tokens, only time: one request at a time, over KServe's protocol."""

import json
import sysconfig
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.engines.environments import engine_python
from tests.engines.running_engine import Engine, Policy, Start, running
from tests.integration.real_stack import RealStack
from tidegate.sim.processes import free_ports

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

PATH = "/v2/models/nap/infer"
ONE_WAITS: Policy = {
    "tidegate-slots-max": "1",
    "tidegate-queue-len-max": "1",
    "tidegate-ttft-budget-ms": "60000",
}


def nap(seconds: float) -> dict[str, Any]:
    """The body of a request that takes so long."""
    return {"inputs": [{"name": "SECONDS", "datatype": "FP32", "shape": [1], "data": [seconds]}]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    """The engine, whose page is on a port of its own."""
    python = engine_python("triton", "nvidia-pytriton==0.7.0")
    ports = free_ports(3)
    command = [str(python), str(Path(__file__).with_name("triton_program.py")), *(str(port) for port in ports)]
    env = {"LD_LIBRARY_PATH": sysconfig.get_config_var("LIBDIR")}
    page_url = f"http://127.0.0.1:{ports[2]}/metrics"
    triton = Engine(kind="triton", address=f"127.0.0.1:{ports[0]}", page_url=page_url)
    folder = tmp_path_factory.mktemp("triton")
    async with running(triton, command, ready_path="/v2/models/nap/ready", log_dir=folder, env=env):
        yield triton


async def scored(stack: RealStack, *, asked: int) -> tuple[float, float]:
    """Seconds predicted, and seconds taken, of all answers so far, once so many have been compared."""
    await stack.service.until("scored_timed_answers_total", asked, model="nap")
    names = ("scored_predicted_seconds_total", "scored_service_seconds_total")
    predicted_s, taken_s = [await stack.service.metric(name, model="nap") for name in names]
    return predicted_s, taken_s


async def nap_in_turn(stack: RealStack, count: int) -> None:
    """So many requests of 50 ms, one after the other."""
    for _ in range(count):
        answer = await stack.ask(PATH, **nap(0.05))
        assert json.loads(answer.body)["outputs"][0]["data"] == [pytest.approx(0.05)]


async def test_times_are_learned(start: Start) -> None:
    """Answers have no tokens: their time is what is predicted, badly at first, and well after twenty of them."""
    stack = await start(ONE_WAITS)
    await nap_in_turn(stack, 1)
    first_predicted_s, first_taken_s = await scored(stack, asked=1)
    await nap_in_turn(stack, 20)
    before_predicted_s, before_taken_s = await scored(stack, asked=21)
    await nap_in_turn(stack, 10)
    predicted_s, taken_s = await scored(stack, asked=31)
    predicted_s, taken_s = (predicted_s - before_predicted_s) / 10, (taken_s - before_taken_s) / 10
    print(f"\npredicted {first_predicted_s:.3f} s at first, {predicted_s:.3f} s in the end; takes {taken_s:.3f} s")
    assert 0.05 <= taken_s < 0.2
    assert abs(predicted_s - taken_s) < 0.5 * taken_s
    assert abs(predicted_s - taken_s) < abs(first_predicted_s - first_taken_s)
    await stack.service.assert_sound()


async def test_one_waits_and_the_next_is_refused(start: Start) -> None:
    """Behind a busy model one is held here, none waits in Triton, and another gets a 429 in Triton's own form."""
    stack = await start(ONE_WAITS)
    long = stack.ask(PATH, **nap(3.0))
    await stack.service.until("pool_sequences", 1)
    held = stack.ask(PATH, **nap(0.01))
    await stack.service.until("pool_queue_len", 1)
    refused = await stack.ask(PATH, **nap(0.01))
    assert (refused.status, list(json.loads(refused.body))) == (429, ["error"])
    assert refused.headers["x-tidegate-reason"].startswith("queue_full")
    assert (await stack.reading()).waiting == 0
    assert not long.done()
    assert [(await each).status for each in (long, held)] == [200, 200]
    assert (await held).queue_ms > 0
    await stack.service.assert_sound()


async def test_who_leaves_gives_the_slot_back(start: Start) -> None:
    """A client that leaves frees its slot here at once. Triton works on to the end: what follows waits there."""
    stack = await start(ONE_WAITS)
    leaving = stack.ask(PATH, **nap(2.0))
    await stack.service.until("pool_sequences", 1)
    held = stack.ask(PATH, **nap(0.01))
    await stack.service.until("pool_queue_len", 1)
    leaving.cancel()
    await stack.service.until("pool_queue_len", 0)
    assert (await held).status == 200
    await stack.service.until("outcomes_total", 1, ending="client_cancelled")
    await stack.service.assert_sound()
