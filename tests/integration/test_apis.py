"""Every API through the real Envoy and the real service: usage in what is reported, errors, what costs nothing."""

from typing import Any

import pytest

from tests.integration.api_answers import COHERE, EMBEDDINGS, RERANK, SCORE, TRANSCRIPTION, TURNS, events, form, play
from tests.integration.conftest import PuppetStackFactory
from tests.integration.puppet_engine import Call
from tests.integration.puppet_stack import REFUSE_ALL_ELSE

pytestmark = pytest.mark.envoy

USAGES: list[tuple[str, dict[str, Any], str | dict[str, Any], str, int, int | None]] = [
    ("/v1/responses", {"input": "Hello"}, "vllm-responses.json", "openai_responses", 8, 4),
    ("/v1/responses", {"input": TURNS, "stream": True}, "vllm-responses-stream.sse", "openai_responses", 8, 3),
    ("/v1/messages", {"messages": TURNS}, "vllm-messages.json", "anthropic_messages", 6, 4),
    (
        "/v1/messages?beta=1",
        {"messages": TURNS, "stream": True},
        "vllm-messages-stream.sse",
        "anthropic_messages",
        6,
        3,
    ),
    ("/v1/embeddings", {"input": ["one", "two"]}, EMBEDDINGS, "openai_embeddings", 6, None),
    ("/v1/rerank", {"query": "q", "documents": ["a", "b"]}, RERANK, "rerank", 21, None),
    ("/v2/rerank", {"query": "q", "documents": ["a", "b"]}, COHERE, "rerank", 17, None),
    ("/score", {"text_1": "q", "text_2": ["a", "b"]}, SCORE, "score", 9, None),
]
"""Path, body and answer; the API and the tokens that must arrive."""


async def test_usage_arrives(puppet: PuppetStackFactory) -> None:
    """The tokens that an engine tells on each API are in the log, in Envoy's counters and in the service's own."""
    stack = await puppet()
    prompt_sum = completion_sum = 0
    for count, (path, body, answer, api, prompt_tokens, completion_tokens) in enumerate(USAGES, start=1):
        stack.engine.script = play(answer)
        async with stack.http.post(path, json={"model": "tiny", "max_tokens": 9} | body) as response:
            assert response.status == 200, path
            assert len(await response.read()) > 10
        line = (await stack.service.requests(count))[-1]
        assert (line["ending"], line["api"], line["model"]) == ("complete", api, "tiny")
        assert (line["prompt_tokens"], line.get("completion_tokens")) == (prompt_tokens, completion_tokens), path
        prompt_sum += prompt_tokens
        completion_sum += completion_tokens or 0
    assert await stack.until_counter("admission.prompt_tokens_total", prompt_sum) == prompt_sum
    assert await stack.counter("admission.completion_tokens_total") == completion_sum
    assert await stack.service.metric("usage_total", source="reported") == len(USAGES)
    assert await stack.service.metric("unlearned_total") == 0
    assert await stack.counter("admission.stream_errors") == 0
    await stack.assert_sound()


@pytest.mark.parametrize("streamed", [False, True])
async def test_audio_is_admitted_by_its_form(puppet: PuppetStackFactory, streamed: bool) -> None:
    """A transcription is booked by the size of its file, whole or streamed; the form reaches the engine as it was."""
    stack = await puppet()
    done = {"type": "transcript.text.done", "text": "Hello", "usage": {"input_tokens": 14, "output_tokens": 2}}
    stack.engine.script = play(
        events({"type": "transcript.text.delta", "delta": "Hello"}, done) if streamed else TRANSCRIPTION
    )
    fields = {"model": "tiny"} | ({"stream": "true"} if streamed else {})
    async with stack.http.post("/v1/audio/transcriptions", data=form(**fields)) as response:
        assert response.status == 200
        await response.read()
    (line,) = await stack.service.requests(1)
    assert (line["ending"], line["api"], line["model"], line["stream"]) == (
        "complete",
        "openai_audio",
        "tiny",
        streamed,
    )
    assert (line["prompt_tokens"], line["completion_tokens"]) == (14, 2)
    assert stack.engine.calls[0].body.count(b"\x00" * 32_000) == 1
    await stack.assert_sound()


@pytest.mark.parametrize(
    ("path", "event", "ending"),
    [
        ("/v1/messages", {"type": "error", "error": {"type": "overloaded_error", "message": "no"}}, "engine_refused"),
        ("/v1/messages", {"type": "error", "error": {"type": "api_error", "message": "no"}}, "engine_failed"),
        (
            "/v1/responses",
            {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "no"}}},
            "engine_failed",
        ),
        ("/v1/responses", {"error": {"message": "queue full", "code": 503}}, "engine_refused"),
    ],
)
async def test_an_error_event_after_a_200_is_a_failure(
    puppet: PuppetStackFactory, path: str, event: dict[str, Any], ending: str
) -> None:
    """In either API's own words; Envoy counts it, and nobody learns a length from it."""
    stack = await puppet()
    opening = {"type": "response.created", "response": {"error": None, "usage": None}}
    stack.engine.script = play(events(opening, event))
    body = {"model": "tiny", "stream": True, "max_tokens": 9, "messages": TURNS, "input": "Hello"}
    async with stack.http.post(path, json=body) as response:
        assert response.status == 200
        await response.read()
    (line,) = await stack.service.requests(1)
    assert line["ending"] == ending
    assert await stack.until_counter("admission.stream_errors") == 1
    assert await stack.service.metric("unlearned_total", why=ending) == 1
    await stack.assert_sound()


async def test_the_opening_of_responses_is_no_first_token(puppet: PuppetStackFactory) -> None:
    """Of three streams, the two whose first byte is a token have a time to it, in the log and in Envoy's histogram."""
    stack = await puppet()
    asked: list[tuple[str, dict[str, Any], str]] = [
        ("/v1/responses", {"input": "Hello"}, "vllm-responses-stream.sse"),
        ("/v1/messages", {"messages": TURNS, "max_tokens": 9}, "vllm-messages-stream.sse"),
        ("/v1/chat/completions", {"messages": TURNS}, "vllm-chat-stream-usage.sse"),
    ]
    for path, body, answer in asked:
        stack.engine.script = play(answer)
        async with stack.http.post(path, json={"model": "tiny", "stream": True} | body) as response:
            await response.read()
    lines = await stack.service.requests(3)
    assert ["ttft_ms" in line for line in lines] == [False, True, True]
    page = await stack.until_prometheus('envoy_admission_hold_ms_count{tenant="",model="tiny",decision="admit"} 3')
    assert 'envoy_admission_ttft_ms_count{tenant="",model="tiny",decision="admit"} 2' in page
    await stack.assert_sound()


async def test_token_counts_and_pages_pass_a_full_pool(puppet: PuppetStackFactory) -> None:
    """What takes no GPU reaches the engine although nobody may wait, on routes that tidegate never sees."""
    stack = await puppet(policy=REFUSE_ALL_ELSE)
    running = stack.ask()
    call = await stack.engine.call()
    stack.engine.script = Call.complete
    for path in ("/tokenize", "/detokenize", "/v1/messages/count_tokens", "/v1/responses/input_tokens"):
        assert (await stack.ask(path)).status == 200, path
    for path in ("/health", "/v1/models", "/metrics", "/version"):
        async with stack.http.get(path) as response:
            assert response.status == 200, path
    assert await stack.service.metric("default_cost_total") == 0
    call.complete()
    assert (await running).status == 200
    await stack.assert_sound()


async def test_a_batch_of_2048_is_admitted_by_the_shipped_policy(puppet: PuppetStackFactory) -> None:
    """The largest batch that OpenAI takes is not too large for 256 slots, and is booked by its size."""
    stack = await puppet()
    stack.engine.script = play(EMBEDDINGS)
    assert (await stack.ask("/v1/embeddings", input=["a few words each"] * 2048)).status == 200
    (line,) = await stack.service.requests(1)
    assert (line["decision"], line["predicted_tokens"]) == ("admit", 0)
    assert line["reserved_tokens"] > 2 * 2048
    await stack.assert_sound()
