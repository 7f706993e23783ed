"""The open inference protocol through the real Envoy: over HTTP and over gRPC, admitted, held, refused, given back."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import grpc
import pytest

from tests.integration.conftest import factory
from tests.integration.kserve_stack import STREAM, KServeStack, kserve_stack
from tests.integration.puppet_stack import ONE_SLOT, REFUSE_ALL_ELSE
from tests.kserve_messages import TYPES, infer_request

pytestmark = pytest.mark.envoy
INFER = "/v2/models/resnet/infer"
TENSOR = {"name": "X", "datatype": "FP32", "shape": [1, 3, 8, 8], "data": [0.5] * 192}
PATIENT: dict[str, str | None] = ONE_SLOT | {"tidegate-ttft-budget-ms": "60000"}

Start = Callable[..., Awaitable[KServeStack]]


@pytest.fixture
async def kserve(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts the stack: `await kserve(policy=...)`; arguments as of `kserve_stack`."""
    async with factory(kserve_stack, tmp_path / "kserve") as start:
        yield start


async def test_grpc_is_admitted_and_learned_from(kserve: Start) -> None:
    """A ModelInfer reaches a gRPC engine whole, its answer comes back whole, and its time is learned."""
    stack = await kserve()
    stack.grpc_engine.script = lambda call: call.complete()
    request = infer_request(shape=(2, 3, 224, 224), request_id="r1")  # 1.2 MB: more than one HTTP/2 window
    answer = await stack.infer(request)
    assert answer.code is grpc.StatusCode.OK
    assert (answer.message.model_name, answer.message.id) == ("resnet", "r1")
    assert stack.grpc_engine.calls[0].request == request
    (line,) = await stack.service.requests(1)
    assert (line["decision"], line["model"], line["ending"], line["pool"]) == ("admit", "resnet", "complete", "engine")
    await stack.service.until("scored_timed_answers_total", 1, model="resnet")
    assert await stack.service.metric("scored_service_seconds_total", model="resnet") > 0.0
    assert 2 <= await stack.service.metric("pool_timed_capacity") <= 8  # of 8 at first, as far as the ramp has come
    await stack.assert_sound()


async def test_http_is_admitted_with_json_and_with_binary_tensors(kserve: Start) -> None:
    """Both forms of the HTTP body are read, go on byte for byte, and are booked as one model."""
    stack = await kserve()
    stack.engine.script = lambda call: call.answer(b'{"model_name":"resnet","outputs":[]}')
    whole = json.dumps({"inputs": [TENSOR]}).encode()
    front = json.dumps(
        {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 3, 8, 8], "parameters": {"binary_data_size": 768}}]}
    ).encode()
    binary = front + bytes(range(256)) * 3
    for body in (whole, binary):
        headers = {"content-type": "application/json", "inference-header-content-length": str(len(front))}
        async with stack.http.post(INFER, data=body, headers=headers) as response:
            assert response.status == 200
    assert [call.body for call in stack.engine.calls] == [whole, binary]
    lines = await stack.service.requests(2)
    assert [(line["model"], line["decision"]) for line in lines] == [("resnet", "admit")] * 2
    assert await stack.service.metric("default_cost_total") == 0
    await stack.service.until("scored_timed_answers_total", 2, model="resnet")
    await stack.assert_sound()


async def test_a_held_request_goes_when_its_turn_comes(kserve: Start) -> None:
    """Over gRPC as over HTTP: behind a full engine it waits in the queue, and follows when that is free."""
    stack = await kserve(policy=PATIENT)
    first = stack.infer(request_id="first")
    running = await stack.grpc_engine.call()
    second = stack.infer(request_id="second")
    await stack.held(1)
    third = stack.ask(INFER, inputs=[TENSOR])
    await stack.held(2)
    running.complete()
    held = await stack.grpc_engine.call()
    assert held.request.id == "second"
    held.complete()
    call = await stack.engine.call()
    call.answer(b"{}")
    assert [(await each).code for each in (first, second)] == [grpc.StatusCode.OK] * 2
    assert int((await second).metadata["x-tidegate-queue-ms"]) > 0
    assert (await third).status == 200
    assert await stack.service.metric("decisions_total", decision="delay") == 2
    await stack.assert_sound()


async def test_a_refusal_over_grpc_is_a_status_in_trailers(kserve: Start) -> None:
    """A loaded pool refuses with RESOURCE_EXHAUSTED, a message for people and the delay to keep; HTTP gets its own."""
    stack = await kserve(policy=REFUSE_ALL_ELSE)
    first = stack.infer()
    running = await stack.grpc_engine.call()
    refused = await stack.infer()
    assert refused.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert refused.details.startswith("The model is busy")
    assert refused.metadata["x-tidegate-reason"].startswith("queue_full")
    assert int(refused.metadata["retry-after-ms"]) > 0
    answer = await stack.ask(INFER, inputs=[TENSOR])
    assert (answer.status, list(json.loads(answer.body))) == (429, ["error"])
    assert answer.headers["content-type"] == "application/json"
    running.complete()
    assert (await first).code is grpc.StatusCode.OK
    lines = await stack.service.requests(3)
    assert sorted(line["ending"] for line in lines) == ["complete", "rejected", "rejected"]
    await stack.assert_sound()


async def test_a_refusal_while_shutting_down_is_unavailable(kserve: Start) -> None:
    """What waits when the service is told to stop gets UNAVAILABLE, which gRPC clients retry elsewhere."""
    stack = await kserve(policy=PATIENT)
    first = stack.infer()
    running = await stack.grpc_engine.call()
    second = stack.infer()
    await stack.held(1)
    stack.service.child.signal(signal.SIGTERM)
    refused = await second
    assert refused.code is grpc.StatusCode.UNAVAILABLE
    assert refused.metadata["x-tidegate-reason"] == "shutting_down"
    running.complete()
    assert (await first).code is grpc.StatusCode.OK


async def test_a_client_that_leaves_frees_its_slot(kserve: Start) -> None:
    """A cancelled call, running or held, gives back what it holds, and the next in line goes to the engine."""
    stack = await kserve(policy=PATIENT)
    first = stack.infer()
    running = await stack.grpc_engine.call()
    second, third = stack.infer(request_id="second"), stack.infer(request_id="third")
    await stack.held(2)
    second.cancel()
    await stack.held(1)
    first.cancel()
    await asyncio.wait_for(running.gone.wait(), 5.0)
    followed = await stack.grpc_engine.call()
    assert followed.request.id == "third"
    followed.complete()
    assert (await third).code is grpc.StatusCode.OK
    await stack.service.until("outcomes_total", 2, ending="client_cancelled")
    await stack.assert_sound()


async def test_a_status_of_the_engine_is_told_apart(kserve: Start) -> None:
    """gRPC says 200 whatever happens: a full queue, a bad request and a crash in the engine are seen all the same."""
    stack = await kserve()
    codes = [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.INTERNAL]
    for code in codes:
        stack.grpc_engine.script = lambda call, code=code: call.fail(code)  # type: ignore[misc]
        answer = await stack.infer()
        assert (answer.code, answer.details) == (code, "Exceeds maximum queue size")
    lines = await stack.service.requests(3)
    assert [line["ending"] for line in lines] == ["engine_refused", "bad_request", "engine_failed"]
    assert await stack.service.metric("scored_timed_answers_total") == 0
    await stack.assert_sound()


async def test_streams_and_health_go_past_the_service(kserve: Start) -> None:
    """A bidirectional stream answers message by message with no verdict in between, and so does a health check."""
    stack = await kserve(policy=REFUSE_ALL_ELSE)
    method = stack.channel.stream_stream(
        STREAM,
        request_serializer=TYPES["ModelInferRequest"].SerializeToString,
        response_deserializer=TYPES["ModelStreamInferResponse"].FromString,
    )
    call = method(timeout=10.0)
    for number in ("1", "2"):
        await call.write(infer_request(request_id=number))
        assert (await call.read()).infer_response.id == number
    await call.done_writing()
    alive = stack.channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
    assert await alive(b"", timeout=5.0) == b"\x08\x01"
    stack.engine.script = lambda call: call.answer()
    async with stack.http.get("/v2/health/ready") as response:
        assert response.status == 200
    assert await stack.service.metric("streams_total") == 0
    await stack.assert_sound()


async def test_the_kill_switch_takes_grpc_past_the_service_too(kserve: Start) -> None:
    """One runtime key is for all routes: a full pool refuses no gRPC call any more, and one stat counts them all."""
    stack = await kserve(policy=REFUSE_ALL_ELSE)
    first = stack.infer()
    running = await stack.grpc_engine.call()
    await stack.admin.runtime_modify(**{"admission.bypass_percent": "100"})
    past = stack.infer()
    (await stack.grpc_engine.call()).complete()
    assert (await past).code is grpc.StatusCode.OK
    assert await stack.until_counter("vhost.engine.route.bypass.upstream_rq_total") == 1
    running.complete()
    assert (await first).code is grpc.StatusCode.OK
    assert await stack.service.metric("decisions_total") == 1
    await stack.assert_sound()


async def test_grpc_can_be_steered_in_a_pool_of_its_own(kserve: Start) -> None:
    """A route may name the gRPC addresses as its engines: tidegate chooses among them, and HTTP keeps its own pool."""
    stack = await kserve(own_pool=True)
    stack.grpc_engine.script = lambda call: call.complete()
    stack.engine.script = lambda call: call.answer()
    assert (await stack.infer()).code is grpc.StatusCode.OK
    assert (await stack.ask(INFER, inputs=[TENSOR])).status == 200
    by_pool = {line["pool"]: line for line in await stack.service.requests(2)}
    assert set(by_pool) == {"grpc", "engine"}
    assert stack.grpc_engine.calls[0].metadata["x-gateway-destination-endpoint"] == by_pool["grpc"]["engine"]
    assert await stack.service.metric("steer_missed_total") == 0
    await stack.assert_sound()


async def test_a_compressed_message_is_admitted_and_may_be_refused(kserve: Start) -> None:
    """A client that compresses is no way around admission: unread, it waits and is refused like any other."""
    stack = await kserve(policy=REFUSE_ALL_ELSE)
    method = stack.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
    body = infer_request().SerializeToString()
    first = asyncio.ensure_future(method(body, compression=grpc.Compression.Gzip, timeout=10.0))
    running = await stack.grpc_engine.call()
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await method(body, compression=grpc.Compression.Gzip, timeout=10.0)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    running.complete()
    await first
    await stack.assert_sound()
