"""What the shipped envoy.yaml counts and reports: stats by tenant and model, and one access-log entry a request."""

import asyncio

import pytest

from tests.integration.conftest import ScriptedStackFactory
from tests.integration.scripted_ext_proc import ADMITTED, REFUSED, Seen, Verdict

pytestmark = pytest.mark.envoy
TAGS = 'tenant="acme",model="tiny",decision="admit"'


@pytest.mark.parametrize(
    ("path", "capture", "prompt_tokens", "completion_tokens"),
    [
        ("/v1/chat/completions", "vllm-chat.json", 14, 12),
        ("/v1/chat/completions", "vllm-chat-stream-usage.sse", 8, 4),
        ("/v1/chat/completions", "vllm-chat-stream-continuous.sse", 8, 3),
        ("/v1/chat/completions", "llamacpp-chat-stream.sse", 8, 3),
        ("/v1/completions", "vllm-completions-stream.sse", 2, 3),
        ("/v1/messages", "vllm-messages-stream.sse", 6, 3),
        ("/v1/responses", "vllm-responses-stream.sse", 8, 3),
    ],
)
async def test_usage_is_read_from_real_answers(
    scripted: ScriptedStackFactory, path: str, capture: str, prompt_tokens: int, completion_tokens: int
) -> None:
    """Captured answers of real engines give the tokens that they state, in the entry and in the counters."""
    stack = await scripted()
    stack.engine.answer = capture
    async with stack.http.post(path, json={}) as response:
        assert response.status == 200
        await response.read()
    entry = await stack.service.entry()
    usage = entry.common_properties.metadata.filter_metadata["usage"]
    assert dict(usage) == {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
    assert await stack.until_counter("admission.completion_tokens_total", completion_tokens) == completion_tokens
    assert await stack.counter("admission.prompt_tokens_total") == prompt_tokens
    assert stack.error_lines() == []


async def test_entry_tells_all_about_a_request(scripted: ScriptedStackFactory) -> None:
    """The entry of a streamed answer carries the metadata, the times in microseconds, the attempts and Retry-After."""
    stack = await scripted()
    stack.engine.answer = "vllm-chat-stream-usage.sse"
    stack.engine.headers = {"retry-after": "3"}
    async with stack.chat(stream=True) as response:
        await response.read()
    entry = await stack.service.entry()
    assert dict(entry.common_properties.metadata.filter_metadata["admission"]) == ADMITTED
    tags = entry.common_properties.custom_tags
    assert 0 < int(tags["ttft_us"]) <= int(tags["e2e_us"])
    assert tags["attempts"] == "1"
    assert entry.response.response_headers["retry-after"] == "3"
    assert entry.common_properties.upstream_cluster == "engine"


async def test_histograms_have_the_configured_buckets(scripted: ScriptedStackFactory) -> None:
    """Each histogram is tagged by tenant, model and decision and has the buckets of the file, not Envoy's own."""
    stack = await scripted()
    stack.engine.answer = "vllm-chat-stream-usage.sse"
    async with stack.chat(stream=True) as response:
        await response.read()
    page = await stack.until_prometheus(f"envoy_admission_ttft_ms_count{{{TAGS}}} 1")
    assert f'envoy_admission_hold_ms_bucket{{{TAGS},le="10"}} 0' in page
    assert f'envoy_admission_hold_ms_bucket{{{TAGS},le="25"}} 1' in page
    assert f'envoy_admission_predicted_tokens_bucket{{{TAGS},le="64"}} 0' in page
    assert f'envoy_admission_predicted_tokens_bucket{{{TAGS},le="128"}} 1' in page
    assert f'envoy_admission_completion_tokens_bucket{{{TAGS},le="16"}} 1' in page
    assert f'envoy_admission_ttft_ms_bucket{{{TAGS},le="300000"}} 1' in page
    assert f"envoy_admission_requests{{{TAGS}}} 1" in page
    streams = 'envoy_http_ext_proc_streams_started{envoy_http_conn_manager_prefix="gateway",envoy_ext_proc_prefix='
    assert f'{streams}"admission"}} 1' in page


async def test_refusals_are_counted_by_rule(scripted: ScriptedStackFactory) -> None:
    """A refusal counts once among the requests and once under its rule."""

    async def refuse(_: Seen) -> Verdict:
        return Verdict(status=429, metadata=REFUSED)

    stack = await scripted(decide=refuse)
    async with stack.chat() as response:
        assert response.status == 429
    assert await stack.until_counter("admission.rejects.tenant.acme.model.tiny.reason.queue_full") == 1
    assert await stack.counter("admission.requests.tenant.acme.model.tiny.decision.reject") == 1


async def test_ttft_counts_only_streams_that_began_well(scripted: ScriptedStackFactory) -> None:
    """A whole JSON answer, an error, a stream without a byte and one with an error event have no first token."""
    stack = await scripted()
    async with stack.chat(stream=True) as response:  # the engine answers JSON although a stream was asked for
        await response.read()
    stack.engine.status = 503
    async with stack.chat(stream=True) as response:
        assert response.status == 503
    stack.engine.status = 200
    stack.engine.answer = b'data: {"error": {"message": "queue full", "code": 503}}\n\n'
    async with stack.chat(stream=True) as response:
        assert b"error" in await response.read()
    stack.engine.answer = "vllm-chat-stream-usage.sse"
    stack.engine.gate.clear()
    async with stack.chat(stream=True) as response:
        response.close()  # before the first byte
    stack.engine.gate.set()
    await stack.until_counter("admission.requests.", 4)
    async with stack.chat(stream=True) as response:
        await response.read()
    page = await stack.until_prometheus(f"envoy_admission_hold_ms_count{{{TAGS}}} 5")
    assert f"envoy_admission_ttft_ms_count{{{TAGS}}} 1" in page
    assert await stack.counter("admission.stream_errors") == 1
    assert stack.error_lines() == []


async def test_streams_without_usage_still_have_a_ttft(scripted: ScriptedStackFactory) -> None:
    """Most clients do not ask for usage in a stream: its first token is timed all the same."""
    stack = await scripted()
    stack.engine.answer = b'data: {"choices": [{"delta": {"content": "Hi"}}]}\n\ndata: [DONE]\n\n'
    async with stack.chat(stream=True) as response:
        await response.read()
    page = await stack.until_prometheus(f"envoy_admission_ttft_ms_count{{{TAGS}}} 1")
    assert "envoy_admission_completion_tokens" not in page
    assert stack.error_lines() == []


async def test_ordinary_traffic_is_always_decided(scripted: ScriptedStackFactory) -> None:
    """no_decision stays at zero for answers, errors of the engine, refusals, GET on inference paths and other paths."""
    stack = await scripted()
    async with stack.chat() as response:
        assert response.status == 200
    async with stack.http.get("/v1/chat/completions") as response:
        assert response.status == 200
    async with stack.http.get("/v1/models") as response:
        assert response.status == 200
    stack.engine.status = 500
    async with stack.chat() as response:
        assert response.status == 500
    await stack.until_counter("admission.requests.", 3)
    assert await stack.counter("no_decision") == 0
    assert await stack.counter("decision.pass") > 0


async def test_client_that_leaves_while_held_is_reported(scripted: ScriptedStackFactory) -> None:
    """Its entry says `pending`, no engine met it, and nothing counts as undecided."""
    held = asyncio.Event()

    async def hold(_: Seen) -> Verdict:
        held.set()
        await asyncio.Event().wait()
        raise AssertionError

    stack = await scripted(decide=hold)
    waiting = asyncio.ensure_future(stack.chat().__aenter__())
    await asyncio.wait_for(held.wait(), 5.0)
    waiting.cancel()
    entry = await stack.service.entry()
    assert entry.common_properties.metadata.filter_metadata["admission"]["decision"] == "pending"
    assert entry.common_properties.custom_tags["attempts"] == "0"
    await stack.until_counter("decision.pending")
    assert await stack.counter("no_decision") == 0
    assert stack.engine.received == []
    assert stack.error_lines() == []
