"""The vendors' own clients on every API of theirs, through the real Envoy: served, refused, and leaving."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anthropic
import openai
import pytest

from tests.integration.api_answers import CAPTURES, EMBEDDINGS, TRANSCRIPTION, TURNS, play
from tests.integration.conftest import PuppetStackFactory
from tests.integration.puppet_stack import REFUSE_ALL_ELSE, PuppetStack

pytestmark = pytest.mark.envoy


@asynccontextmanager
async def sdks(stack: PuppetStack) -> AsyncIterator[tuple[openai.AsyncOpenAI, anthropic.AsyncAnthropic]]:
    """Both vendors' clients, aimed at the gateway; they do not retry, so that one refusal is one error."""
    async with AsyncExitStack() as exits:
        ours = await exits.enter_async_context(
            openai.AsyncOpenAI(base_url=f"{stack.url}/v1", api_key="k", max_retries=0)
        )
        theirs = await exits.enter_async_context(
            anthropic.AsyncAnthropic(base_url=stack.url, api_key="k", max_retries=0)
        )
        yield ours, theirs


async def test_the_clients_are_served(puppet: PuppetStackFactory) -> None:
    """Responses, embeddings, audio and messages, streamed and whole, by the vendors' own clients."""
    stack = await puppet()
    async with sdks(stack) as (ours, theirs):
        stack.engine.script = play("vllm-responses.json")
        answer = await ours.responses.create(model="tiny", input="Hello", max_output_tokens=4)
        assert answer.output_text == "ilisiarisonding"
        stack.engine.script = play("vllm-responses-stream.sse")
        kinds = [event.type async for event in await ours.responses.create(model="tiny", input="Hi", stream=True)]
        assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
        stack.engine.script = play(EMBEDDINGS)
        vectors = await ours.embeddings.create(model="tiny", input=["one", "two"], encoding_format="float")
        assert vectors.data[0].embedding == [0.5, 0.25]
        stack.engine.script = play(TRANSCRIPTION)
        heard = await ours.audio.transcriptions.create(model="tiny", file=("a.wav", b"\x00" * 32_000))
        assert heard.text == "Hello"
        stack.engine.script = play(b"\xff\xfb sound")
        assert (await ours.audio.speech.create(model="tiny", input="Hello", voice="alloy")).content == b"\xff\xfb sound"
        stack.engine.script = play("vllm-messages.json")
        message = await theirs.messages.create(model="tiny", max_tokens=4, messages=TURNS)
        assert message.usage.output_tokens == 4
        stack.engine.script = play("vllm-messages-stream.sse")
        async with theirs.messages.stream(model="tiny", max_tokens=3, messages=TURNS) as stream:
            assert await stream.get_final_text() == " keyword traceback instance"
    lines = await stack.service.requests(7)
    assert [line["api"] for line in lines] == [
        "openai_responses", "openai_responses", "openai_embeddings", "openai_audio", "openai_speech",
        "anthropic_messages", "anthropic_messages",
    ]  # fmt: skip
    assert {line["ending"] for line in lines} == {"complete"}
    await stack.assert_sound()


async def test_the_clients_understand_a_refusal(puppet: PuppetStackFactory) -> None:
    """With the engine full and no queue each client raises its own rate-limit error, with the words of its API."""
    stack = await puppet(policy=REFUSE_ALL_ELSE)
    running = stack.ask()
    call = await stack.engine.call()
    async with sdks(stack) as (ours, theirs):
        asked: list[Callable[[], Any]] = [
            lambda: ours.responses.create(model="tiny", input="Hello"),
            lambda: ours.responses.create(model="tiny", input="Hello", stream=True),
            lambda: ours.embeddings.create(model="tiny", input="Hello"),
            lambda: ours.audio.transcriptions.create(model="tiny", file=("a.wav", b"\x00" * 32_000)),
        ]
        for ask in asked:
            with pytest.raises(openai.RateLimitError) as refused:
                await ask()
            assert refused.value.code == "queue_full"
            assert refused.value.response.headers["retry-after"]
        for streamed in (False, True):
            with pytest.raises(anthropic.RateLimitError) as limited:
                await theirs.messages.create(model="tiny", max_tokens=4, messages=TURNS, stream=streamed)
            assert isinstance(limited.value.body, dict)
            assert limited.value.body["error"]["type"] == "rate_limit_error"
            assert limited.value.response.headers["x-tidegate-reason"].startswith("queue_full")
    call.complete()
    assert (await running).status == 200
    await stack.until_counter("admission.rejects", len(asked) + 2)
    assert len(stack.engine.calls) == 1
    await stack.assert_sound()


async def test_a_client_that_leaves_gives_its_slot_back(puppet: PuppetStackFactory) -> None:
    """A stream of messages that is closed half-way frees the only slot for the responses that wait for it."""
    stack = await puppet(policy={"tidegate-slots-max": "1", "tidegate-ttft-budget-ms": "60000"})
    stack.engine.script = lambda call: call.send((CAPTURES / "vllm-messages-stream.sse").read_bytes()[:400])
    async with sdks(stack) as (ours, theirs):
        reading = await theirs.messages.create(model="tiny", max_tokens=4, messages=TURNS, stream=True)
        assert (await anext(aiter(reading))).type == "message_start"
        waiting = asyncio.create_task(ours.responses.create(model="tiny", input="Hello"))
        await stack.held(1)
        stack.engine.script = play("vllm-responses.json")
        await reading.close()
        assert (await waiting).status == "incomplete"
    left, served = await stack.service.requests(2)
    assert (left["ending"], left["prompt_tokens"]) == ("client_cancelled", 6)
    assert (served["ending"], served["decision"]) == ("complete", "delay")
    await stack.assert_sound()
