"""The shipped envoy.yaml on the real Envoy: what is processed, what is not, and what happens without a service."""

import asyncio
import io
import subprocess

import aiohttp
import pytest
from yarl import URL

from tests.integration.conftest import ScriptedStackFactory
from tests.integration.scripted_ext_proc import ADMITTED, REFUSED, Seen, Verdict
from tests.integration.stack import eventually
from tidegate.sim.envoy_config import Config, ext_proc_filter, shipped_template
from tidegate.sim.launch import envoy_binary

pytestmark = pytest.mark.envoy
INFERENCE_PATHS = (
    "/v1/chat/completions",
    "/v1/completions?seed=1",
    "/v1/responses",
    "/v1/messages",
    "/v1/embeddings",
    "/v1/audio/transcriptions",
    "/v1/rerank",
    "/v2/rerank",
    "/rerank",
    "/v1/score",
    "/pooling",
    "/generate",
    "/generate_stream",
    "/completion",
    "/v2/models/llama/infer",
    "/v2/models/llama/versions/1/generate_stream",
    "/v1/%63hat/completions",
    "//v1/chat/completions",
    "/v1/models/../completions",
)


def fail_closed(config: Config) -> None:
    ext_proc_filter(config)["failure_mode_allow"] = False


def test_envoy_accepts_the_file_as_it_is() -> None:
    """The shipped file passes Envoy's own validation without an edit."""
    command = [str(envoy_binary()), "--mode", "validate", "--log-level", "error", "-c", str(shipped_template())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr


async def test_inference_paths_are_processed(scripted: ScriptedStackFactory) -> None:
    """Every path that costs GPU time is shown to the service, however it is spelt."""
    stack = await scripted()
    for count, path in enumerate(INFERENCE_PATHS, start=1):
        async with stack.http.post(URL(stack.url + path, encoded=True), json={}) as response:
            assert response.status == 200, path
        assert len(stack.service.seen) == count, path
        assert stack.service.seen[-1].messages[:2] == ["request_headers", "request_body"]


async def test_other_paths_are_not_processed(scripted: ScriptedStackFactory) -> None:
    """Model lists, health and metrics go straight to the engine, whatever their size."""
    stack = await scripted()
    stack.engine.answer = b'{"large": "' + b"x" * 3_000_000 + b'"}'
    for path in ("/v1/models", "/health", "/metrics", "/tokenize", "/v1/chat/completions/render"):
        async with stack.http.get(path) as response:
            assert response.status == 200
            assert len(await response.read()) > 3_000_000
    assert await stack.counter("ext_proc.admission.streams_started") == 0


async def test_service_learns_policy_route_and_body(scripted: ScriptedStackFactory) -> None:
    """The policy keys, the route and cluster names and the whole body arrive; credentials do not."""
    stack = await scripted(policy={"tidegate-slots-max": "4", "tidegate-queue-len-max": None})
    async with stack.chat(headers={"authorization": "Bearer secret", "cookie": "a=b", "x-api-key": "k"}) as response:
        assert response.status == 200
    seen = stack.service.seen[0]
    assert seen.keys["tidegate-slots-max"] == "4"
    assert "tidegate-queue-len-max" not in seen.keys
    assert {"tidegate-pool", "tidegate-message-timeout-ms", "tidegate-hold-ms-max"} <= set(seen.keys)
    assert seen.attributes == {"xds.route_name": "inference-openai", "xds.cluster_name": "engine"}
    assert b'"Hello"' in seen.body
    assert not {"authorization", "cookie", "x-api-key"} & set(seen.headers)
    assert stack.engine.received[0].headers["authorization"] == "Bearer secret"


async def test_client_cannot_steer_or_speak_as_tidegate(scripted: ScriptedStackFactory) -> None:
    """Steering and tidegate headers of a client vanish before the service sees them; those of the service arrive."""

    async def steer(_: Seen) -> Verdict:
        return Verdict(metadata=ADMITTED, headers={"x-gateway-destination-endpoint": "10.0.0.1:8000"})

    spoofed = {
        "x-gateway-destination-endpoint": "6.6.6.6:1",
        "x-tidegate-reason": "mine",
        "accept-encoding": "gzip",
    }
    stack = await scripted()
    async with stack.chat(headers=spoofed) as response:
        assert response.status == 200
    stack.service.decide = steer
    async with stack.chat(headers=spoofed) as response:
        assert response.status == 200
    for seen in stack.service.seen:
        assert not {"x-gateway-destination-endpoint", "x-tidegate-reason"} & set(seen.headers)
    first, second = stack.engine.received
    assert not set(spoofed) & set(first.headers)
    assert second.headers["x-gateway-destination-endpoint"] == "10.0.0.1:8000"
    assert await stack.counter("rejected_header_mutations") == 0


async def test_refusal_reaches_the_client_whole(scripted: ScriptedStackFactory) -> None:
    """A refusal keeps its status, body and every header a client acts on, and no engine sees the request."""
    headers = {
        "content-type": "application/json",
        "retry-after": "7",
        "retry-after-ms": "6800",
        "x-should-retry": "true",
        "x-ratelimit-remaining-requests": "0",
        "x-tidegate-reason": "queue_full",
    }

    async def refuse(_: Seen) -> Verdict:
        return Verdict(status=503, metadata=REFUSED, headers=headers, body=b'{"error": {}}', details="tidegate_expired")

    stack = await scripted(decide=refuse)
    async with stack.chat() as response:
        assert (response.status, await response.read()) == (503, b'{"error": {}}')
        assert {key: response.headers[key] for key in headers} == headers
        assert response.headers["x-tidegate-queue-ms"] == "12"
    assert stack.engine.received == []


async def test_without_a_service_requests_pass_undecided(scripted: ScriptedStackFactory) -> None:
    """Fail open: with the service away the engine answers, and no_decision says so."""
    stack = await scripted(with_service=False)
    async with stack.chat() as response:
        assert response.status == 200
        assert "x-tidegate-queue-ms" not in response.headers
    assert await stack.until_counter("admission.no_decision.code.200") == 1
    assert await stack.counter("ext_proc.admission.failure_mode_allowed") == 1


async def test_silent_service_delays_by_message_timeout_only(scripted: ScriptedStackFactory) -> None:
    """A service that says its first word and hangs costs one message timeout; the request then passes undecided."""

    async def hang(_: Seen) -> Verdict:
        await asyncio.Event().wait()
        raise AssertionError

    def impatient(config: Config) -> None:
        ext_proc_filter(config)["message_timeout"] = "0.2s"

    stack = await scripted(decide=hang, edit=impatient)
    async with stack.chat() as response:
        assert response.status == 200
    assert await stack.until_counter("admission.no_decision.code.200") == 1


async def test_fail_closed_without_a_service_is_a_503_that_clients_understand(scripted: ScriptedStackFactory) -> None:
    """With failure_mode_allow off, Envoy's empty 500 becomes a JSON 503 with Retry-After."""
    stack = await scripted(with_service=False, edit=fail_closed)
    async with stack.chat() as response:
        assert response.status == 503
        assert response.headers["retry-after"] == "1"
        assert (await response.json())["error"]["code"] == "admission_unavailable"
    assert await stack.until_counter("admission.no_decision.code.503") == 1


async def test_kill_switch_goes_past_the_service_and_back(scripted: ScriptedStackFactory) -> None:
    """The runtime key sends requests past the service at once, counted apart, and taking it back restores admission."""
    stack = await scripted()
    await stack.admin.runtime_modify(**{"admission.bypass_percent": "100"})
    async with stack.chat() as response:
        assert response.status == 200
    assert stack.service.seen == []
    assert await stack.until_counter("vhost.engine.route.bypass.upstream_rq_total") == 1
    await stack.admin.runtime_modify(**{"admission.bypass_percent": ""})
    async with stack.chat() as response:
        assert response.status == 200
    assert len(stack.service.seen) == 1
    assert await stack.counter("no_decision") == 0


async def test_websocket_is_not_processed(scripted: ScriptedStackFactory) -> None:
    """A WebSocket works on its own route and never meets the service."""
    stack = await scripted()
    async with stack.http.ws_connect("/v1/realtime") as socket:
        await socket.send_str("hello")
        assert await socket.receive_str(timeout=5.0) == "hello"
    assert stack.service.seen == []


async def test_upgrade_is_no_way_around_admission(scripted: ScriptedStackFactory) -> None:
    """An upgrade on an inference path is refused at once instead of hanging or going past the service."""
    stack = await scripted()
    with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
        await stack.http.ws_connect("/v1/chat/completions", method="POST")
    assert stack.engine.received == []
    assert await stack.counter("no_decision") == 0


async def test_body_past_the_limit_is_refused_by_envoy(scripted: ScriptedStackFactory) -> None:
    """A prompt larger than the buffer is a 413 that counts neither as undecided nor as a request to the engine."""
    stack = await scripted()
    async with stack.http.post("/v1/completions", data=io.BytesIO(b"x" * (33 << 20))) as response:
        assert response.status == 413
    assert stack.engine.received == []
    assert await stack.counter("no_decision") == 0


async def test_stream_to_the_service_ends_with_the_exchange(scripted: ScriptedStackFactory) -> None:
    """The service's stream stays open while the engine streams, and ends when the client leaves."""
    stack = await scripted()
    stack.engine.answer = "vllm-chat-stream-usage.sse"
    stack.engine.gate.clear()
    async with stack.chat(stream=True) as response:
        assert response.status == 200
        assert not stack.service.seen[0].ended.is_set()
        response.close()
    await asyncio.wait_for(stack.service.seen[0].ended.wait(), 5.0)
    await eventually(lambda: stack.counter("cluster.engine.upstream_rq_active"), lambda value: value == 0, what="idle")
    stack.engine.gate.set()
