"""NVIDIA's tritonclient against Envoy, Tidegate and a scripted engine, over HTTP and gRPC, admitted and refused."""

import json
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.conftest import factory
from tests.integration.kserve_engine import InferCall
from tests.integration.kserve_stack import KServeStack, kserve_stack
from tests.integration.puppet_engine import Call
from tests.integration.puppet_stack import REFUSE_ALL_ELSE
from tests.integration.triton_client import TritonClient, install_triton_client

pytestmark = pytest.mark.envoy


@pytest.fixture(scope="module")
def python() -> Path:
    """The interpreter that has the library."""
    return install_triton_client()


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[KServeStack]:
    """One slot and no queue, on engines that answer with twice the number they are given."""
    async with factory(kserve_stack, tmp_path / "triton") as start:
        running = await start(policy=REFUSE_ALL_ELSE)
        running.engine.script, running.grpc_engine.script = twice_over_http, twice_over_grpc
        yield running


@pytest.fixture
async def client(python: Path, stack: KServeStack) -> AsyncIterator[TritonClient]:
    """The library, pointed at the gateway."""
    async with TritonClient(python, stack.url.removeprefix("http://")) as running:
        yield running


def twice_over_http(call: Call) -> None:
    """As Triton answers; the library sends the data of its tensors behind the JSON object."""
    if call.method == "GET":
        call.answer(b"")
        return
    (number,) = struct.unpack("<f", call.body[int(call.headers["inference-header-content-length"]) :])
    output = {"name": "Y", "datatype": "FP32", "shape": [1, 1], "data": [2 * number]}
    call.answer(json.dumps({"model_name": "resnet", "outputs": [output]}).encode())


def twice_over_grpc(call: InferCall) -> None:
    """The same."""
    (number,) = struct.unpack("<f", call.request.raw_input_contents[0])
    call.complete(2 * number)


@pytest.mark.parametrize("over", ["http", "grpc"])
async def test_an_admitted_inference_comes_back_whole(stack: KServeStack, client: TritonClient, over: str) -> None:
    """The tensor reaches the engine, the answer reaches the caller, and its time is learned as the model's."""
    assert (await client.ask(over, number=1.5)).number == 3.0
    assert (await client.ask(over, number=-21.0)).number == -42.0
    lines = await stack.service.requests(2)
    assert [(line["decision"], line["model"], line["ending"]) for line in lines] == [
        ("admit", "resnet", "complete")
    ] * 2
    await stack.service.until("scored_timed_answers_total", 2, model="resnet")
    assert await stack.service.metric("default_cost_total") == 0
    await stack.assert_sound()


async def test_a_refusal_is_an_error_that_callers_can_read(stack: KServeStack, client: TritonClient) -> None:
    """Over HTTP a 429 with the delay to keep, over gRPC RESOURCE_EXHAUSTED, and words for people in both."""
    stack.grpc_engine.script = None
    first = stack.infer()
    running = await stack.grpc_engine.call()
    over_http, over_grpc = await client.ask("http"), await client.ask("grpc")
    assert over_http.status == "429"
    assert over_http.headers["content-type"] == "application/json"
    assert over_http.headers["x-tidegate-reason"].startswith("queue_full")
    assert int(over_http.headers["retry-after"]) >= 1
    assert int(over_http.headers["retry-after-ms"]) >= 1
    assert over_grpc.status == "StatusCode.RESOURCE_EXHAUSTED"
    for refused in (over_http, over_grpc):
        assert refused.message == "The model is busy and its queue is full. Please retry after the time given."
    assert len(stack.grpc_engine.calls) == 1
    assert stack.engine.calls == []
    running.complete()
    await first
    assert await stack.service.metric("decisions_total", decision="reject", reason="queue_full") == 2
    await stack.assert_sound()


async def test_streams_and_health_pass_a_full_pool(stack: KServeStack, client: TritonClient) -> None:
    """ModelStreamInfer and health checks are never decided on, however loaded the pool is."""
    stack.grpc_engine.script = None
    first = stack.infer()
    running = await stack.grpc_engine.call()
    assert (await client.ask("grpc", "stream", number=1.0)).number == 0.0
    for over in ("http", "grpc"):
        assert (await client.ask(over, "live")).live
    running.complete()
    await first
    assert await stack.service.metric("decisions_total") == 1
    await stack.assert_sound()
