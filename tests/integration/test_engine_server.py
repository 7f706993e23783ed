"""The simulated engine over real HTTP: with the OpenAI SDK where a client matters, by hand where the bytes do."""

import asyncio
import io
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from prometheus_client.parser import text_string_to_metric_families

from tidegate.clock import ManualClock
from tidegate.sim.engine_http import EngineServer, EngineSettings
from tidegate.sim.profiles import PROFILES, EngineProfile

FAST = PROFILES["demo"].slowed(0.02)
HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Say hello to the tide."}]
POLLS_MAX = 2000


@asynccontextmanager
async def engine(
    profile: EngineProfile = FAST, **settings: Any
) -> AsyncIterator[tuple[EngineServer, openai.AsyncOpenAI]]:
    """A listening engine, and an SDK client of it that never retries."""
    async with (
        EngineServer(EngineSettings(profile=profile, **settings)) as server,
        openai.AsyncOpenAI(base_url=f"http://{server.address}/v1", api_key="none", max_retries=0) as client,
    ):
        yield server, client


async def fetch(server: EngineServer, path: str) -> str:
    async with aiohttp.ClientSession() as http, http.get(f"http://{server.address}{path}") as response:
        return await response.text()


async def post(server: EngineServer, path: str, body: bytes) -> tuple[int, Any]:
    url, data = f"http://{server.address}{path}", io.BytesIO(body)
    async with aiohttp.ClientSession() as http, http.post(url, data=data) as response:
        return response.status, json.loads(await response.read())


async def stats_until(server: EngineServer, reached: Callable[[dict[str, int]], bool]) -> dict[str, int]:
    """Ask for the engine's figures until they are as wanted; each answer takes a turn of the event loop."""
    stats: dict[str, int] = {}
    for _ in range(POLLS_MAX):
        stats = json.loads(await fetch(server, "/sim/stats"))
        if reached(stats):
            return stats
    raise AssertionError(f"never reached: {stats}")


async def test_chat_whole() -> None:
    """A whole chat answer carries the stated length, why it ended, and its usage."""
    async with engine() as (_, client):
        answer = await client.chat.completions.create(
            model="any", messages=HELLO, metadata={"sim_completion_tokens": "12"}
        )
        assert answer.model == "any"
        assert (answer.choices[0].finish_reason, len(answer.choices[0].message.content or "")) == ("stop", 48)
        assert answer.usage is not None
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (6, 12, 18)


async def test_chat_stream_with_usage() -> None:
    """A stream opens with the role, brings a token an event, ends with a reason, then the usage without a choice."""
    async with engine() as (_, client):
        stream = await client.chat.completions.create(
            model="any",
            messages=HELLO,
            stream=True,
            stream_options={"include_usage": True},
            max_tokens=5,
            extra_body={"ignore_eos": True},
        )
        chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == " sea ebb cay bay fog"
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]][-2:] == [None, "length"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert (chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens) == (6, 5)
    assert len({chunk.id for chunk in chunks}) == 1


async def test_completions_of_several_prompts_and_n() -> None:
    """Each prompt gets n choices; token ids count exactly; without max_tokens the API's own bound of 16 holds."""
    async with engine() as (server, client):
        answer = await client.completions.create(
            model="any", prompt=[[1, 2, 3], [4, 5]], n=2, extra_body={"ignore_eos": True}
        )
        assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
        assert {choice.finish_reason for choice in answer.choices} == {"length"}
        assert answer.usage is not None
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (5, 64)
        assert server.model.counters.finished == 4


async def test_completions_stream_bytes() -> None:
    """Events of a streamed completion are vLLM's: data lines with an empty line after each, and [DONE] at the end."""
    async with engine() as (server, _), aiohttp.ClientSession() as http:
        body = {"model": "m", "prompt": "tide", "stream": True, "max_tokens": 3, "min_tokens": 3}
        headers = {"x-request-id": "r-1"}
        async with http.post(f"http://{server.address}/v1/completions", json=body, headers=headers) as response:
            assert response.status == 200
            assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
            events = (await response.text()).split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    parts = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
    assert "".join(part["choices"][0]["text"] for part in parts) == " sea ebb cay"
    reasons = [part["choices"][0]["finish_reason"] for part in parts]
    assert reasons == [None] * (len(parts) - 1) + ["length"]
    assert {(part["id"], part["object"]) for part in parts} == {("cmpl-r-1", "text_completion")}


async def test_stream_of_two_choices() -> None:
    """A stream with n=2 brings both choices whole, each with its own ending."""
    async with engine() as (_, client):
        stream = await client.chat.completions.create(
            model="any", messages=HELLO, n=2, stream=True, metadata={"sim_completion_tokens": "4"}
        )
        endings, texts = {}, {0: "", 1: ""}
        async for chunk in stream:
            choice = chunk.choices[0]
            texts[choice.index] += choice.delta.content or ""
            if choice.finish_reason:
                endings[choice.index] = choice.finish_reason
    assert (endings, texts) == ({0: "stop", 1: "stop"}, {0: " sea ebb cay bay", 1: " sea ebb cay bay"})


async def test_continuous_usage() -> None:
    """With continuous usage every event tells the tokens so far, from none to all."""
    async with engine() as (_, client):
        stream = await client.chat.completions.create(
            model="any",
            messages=HELLO,
            stream=True,
            metadata={"sim_completion_tokens": "5"},
            extra_body={"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
        )
        counts = [chunk.usage.completion_tokens async for chunk in stream if chunk.usage]
    assert (counts[0], counts[-2:]) == (0, [5, 5])
    assert counts == sorted(counts)


async def test_lengths_are_reproducible() -> None:
    """The same content has the same length on every engine of a seed, whatever its cap; another seed has others."""

    async def lengths(seed: int) -> list[int]:
        async with engine(PROFILES["demo"].slowed(0.002), seed=seed) as (_, client):
            answers = [await client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
                       for text in ("ebb", "flow", "neap")]  # fmt: skip
        return [answer.usage.completion_tokens for answer in answers if answer.usage]

    assert await lengths(1) == await lengths(1)
    assert await lengths(1) != await lengths(2)


async def test_a_client_that_leaves_frees_its_slot() -> None:
    """Closing a stream aborts its sequence: the slot is free for the next request, and its tokens count as waste."""
    async with engine(PROFILES["demo"].slowed(0.2).resized(slots=1)) as (server, client):
        stream = await client.chat.completions.create(
            model="any", messages=HELLO, stream=True, max_tokens=4000, extra_body={"ignore_eos": True}
        )
        assert await anext(aiter(stream))
        waiting = asyncio.create_task(client.completions.create(model="any", prompt="next", max_tokens=2))
        await stats_until(server, lambda stats: stats["waiting"] == 1)
        await stream.close()
        stats = await stats_until(server, lambda stats: stats["aborted"] == 1)
        assert stats["wasted_tokens"] >= 1
        assert (await waiting).choices[0].text == " sea ebb"
        page = await fetch(server, "/metrics")
        assert 'vllm:request_success_total{engine="0",finished_reason="abort",model_name="demo"} 1.0' in page


async def test_a_client_that_leaves_before_the_first_token() -> None:
    """Also a client of a whole answer that gives up while its request waits is forgotten."""
    async with engine(PROFILES["demo"].slowed(10.0).resized(slots=1)) as (server, client):
        tasks = [
            asyncio.create_task(client.completions.create(model="any", prompt="a", max_tokens=9)) for _ in range(2)
        ]
        await stats_until(server, lambda stats: stats["running"] == 1 and stats["waiting"] == 1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        stats = await stats_until(server, lambda stats: stats["aborted"] == 2)
        assert (stats["running"], stats["waiting"], stats["blocks_used"]) == (0, 0, 0)


async def test_its_own_queue_says_503() -> None:
    """Over the queue's bound the answer is vLLM's 503, without a Retry-After."""
    profile = PROFILES["demo"].slowed(10.0).resized(slots=1)
    async with engine(profile, queue_len_max=1) as (server, client), asyncio.TaskGroup() as tasks:
        held = [tasks.create_task(_ignore(client.completions.create(model="m", prompt="a"))) for _ in range(2)]
        await stats_until(server, lambda stats: stats["running"] == 1 and stats["waiting"] == 1)
        with pytest.raises(openai.InternalServerError) as refusal:
            await client.completions.create(model="any", prompt="a")
        assert refusal.value.status_code == 503
        assert "currently busy" in str(refusal.value)
        assert "retry-after" not in refusal.value.response.headers
        for task in held:
            task.cancel()


async def _ignore(awaitable: Any) -> None:
    await awaitable


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/v1/chat/completions", b'{"model": "x", ', 400, "body"),
        ("/v1/chat/completions", b"\xff\xfe", 400, "body"),
        ("/v1/chat/completions", b"[]", 400, "body"),
        ("/v1/chat/completions", b'{"model": "x"}', 400, "body"),
        ("/v1/chat/completions", b'{"messages": [], "temperature": "hot"}', 400, "body.temperature"),
        ("/v1/chat/completions", b'{"messages": [], "max_tokens": 99999}', 400, "max_tokens"),
        ("/v1/chat/completions", b'{"messages": [], "max_tokens": 0}', 400, "body.max_tokens"),
        ("/v1/chat/completions", b'{"messages": [], "max_tokens": 5, "min_tokens": 6}', 400, "body.min_tokens"),
        ("/v1/chat/completions", b'{"messages": [], "n": 0}', 400, "body.n"),
        ("/v1/chat/completions", b'{"messages": [], "stream_options": {}}', 400, "body.stream_options"),
        (
            "/v1/chat/completions",
            b'{"messages": [], "metadata": {"sim_completion_tokens": "-3"}}',
            400,
            "body.metadata.sim_completion_tokens",
        ),
        ("/v1/completions", b'{"prompt": 5}', 400, "body.prompt"),
        ("/v1/completions", b'{"prompt": []}', 400, "body.prompt"),
        ("/v1/completions", b'{"prompt": [null]}', 400, "body.prompt"),
        ("/v1/completions", b'{"prompt": "' + b"a" * 17_000 + b'"}', 400, "input_tokens"),
    ],
)
async def test_bad_requests(path: str, body: bytes, status: int, param: str) -> None:
    """Whatever is wrong with a body, the answer is vLLM's error body, and names the field."""
    async with engine() as (server, _):
        got_status, got = await post(server, path, body)
        assert (got_status, got["error"]["code"], got["error"]["param"]) == (status, status, param)
        assert server.model.counters.submitted == 0


async def test_other_refusals() -> None:
    """An unknown model is 404 where one is named, an unknown path is FastAPI's 404, a huge body 413."""
    async with engine(model="tide-1") as (server, client):
        with pytest.raises(openai.NotFoundError, match=r"does not exist\. Valid aliases: tide-1"):
            await client.completions.create(model="nope", prompt="a")
        assert await post(server, "/v1/embeddings", b"{}") == (404, {"detail": "Not Found"})
        status, body = await post(server, "/v1/completions", b'{"prompt": "' + b"a" * (32 * 2**20) + b'"}')
        assert (status, body["error"]["code"]) == (413, 413)


async def test_models_and_health() -> None:
    """The model list names the profile where no model was named; health is an empty 200."""
    async with engine() as (server, client):
        models = await client.models.list()
        assert [model.id for model in models.data] == ["demo"]
        assert await fetch(server, "/health") == ""


async def test_metrics_page() -> None:
    """The page parses, has vLLM's names, and agrees with the work done."""
    async with engine() as (server, client):
        await client.completions.create(model="m", prompt=[1] * 600, max_tokens=4, extra_body={"ignore_eos": True})
        page = await fetch(server, "/metrics")
    samples = {
        (sample.name, sample.labels.get("finished_reason", "")): sample
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    expected = {
        "vllm:num_requests_running": 0,
        "vllm:num_requests_waiting": 0,
        "vllm:kv_cache_usage_perc": 0,
        "vllm:num_preemptions_total": 0,
        "vllm:prompt_tokens_total": 600,
        "vllm:generation_tokens_total": 4,
        "vllm:prefix_cache_queries_total": 600,
        "vllm:prefix_cache_hits_total": 0,
        "vllm:iteration_tokens_total_count": 4,  # the step that computed a part of the prompt gave no token
        "vllm:iteration_tokens_total_sum": 604,
        "vllm:time_to_first_token_seconds_count": 1,
        "vllm:e2e_request_latency_seconds_count": 1,
        "vllm:cache_config_info": 1,
        "vllm:admission_rejections_total": 0,
        "tidegate_sim_wasted_tokens_total": 0,
    }
    assert {name: samples[name, ""].value for name in expected} == expected
    assert samples["vllm:request_success_total", "length"].value == 1
    config = samples["vllm:cache_config_info", ""].labels
    assert (config["block_size"], config["num_gpu_blocks"]) == ("16", "400")


@asynccontextmanager
async def stream_by_hand(**settings: Any) -> AsyncIterator[tuple[ManualClock, aiohttp.ClientResponse, EngineServer]]:
    """The stream of ten tokens for a prompt of one, from an engine whose clock stands until it is told to go on."""
    clock = ManualClock()
    async with (
        EngineServer(EngineSettings(profile=PROFILES["demo"], **settings), clock=clock) as server,
        aiohttp.ClientSession() as http,
    ):
        body = {"prompt": "a", "stream": True, "max_tokens": 10, "ignore_eos": True}
        async with http.post(f"http://{server.address}/v1/completions", json=body) as response:
            yield clock, response, server


async def test_time_is_the_clocks() -> None:
    """The engine moves only as its clock does: no token before the step's end, the first one at it."""
    async with stream_by_hand() as (clock, response, server):
        first_s = PROFILES["demo"].cost.seconds(1, 0, 0.5)
        clock.advance(first_s * 0.99)
        assert server.model.counters.completion_tokens == 0
        clock.advance(first_s * 0.02)
        assert b'"text":" sea"' in await response.content.readuntil(b"\n\n")
        clock.advance(1.0)
        assert (await response.read()).endswith(b"data: [DONE]\n\n")


async def test_chunk_tokens_gathers_all_but_the_first() -> None:
    """With more tokens a chunk, the first still comes alone, the last does not wait, and none is lost."""
    step_s = PROFILES["demo"].cost.seconds(1, 3, 0.0)
    async with stream_by_hand(chunk_tokens=4) as (clock, response, server):
        clock.advance(step_s)
        assert b'"text":" sea"' in await response.content.readuntil(b"\n\n")
        clock.advance(3.0 * step_s)
        assert server.model.counters.completion_tokens == 4
        await stats_until(server, lambda stats: stats["steps"] == 4)  # turns enough for an event, were there one
        assert response.content.total_bytes < 300
        clock.advance(step_s)
        assert b'"text":" ebb cay bay fog"' in await response.content.readuntil(b"\n\n")
        clock.advance(1.0)
        assert b'"text":" sun oar net sea ebb","logprobs":null,"finish_reason":"length"' in await response.read()


async def test_process_says_where_it_listens_and_ends_on_sigterm() -> None:
    """Port 0 takes a free one, told as a JSON line; SIGTERM ends the process with 0, though a stream is open."""
    code = (
        "import argparse, sys; from tidegate.sim.engine_server import add_engine_arguments, run_engine; "
        "parser = argparse.ArgumentParser(); add_engine_arguments(parser); sys.exit(run_engine(parser.parse_args()))"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, "--port", "0", "--time-scale", "10", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    address = json.loads(await process.stdout.readline())["listening"]
    body = {"prompt": "a", "stream": True, "max_tokens": 1000, "ignore_eos": True}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"http://{address}/v1/completions", json=body) as response,
    ):
        assert response.status == 200
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 20.0) == 0
