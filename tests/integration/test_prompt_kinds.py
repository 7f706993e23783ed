"""The claim of the product, end to end: the words of a prompt tell how long its answer will be."""

import asyncio
import re
from random import Random

import pytest

from tests.integration.conftest import StackFactory
from tests.integration.metrics_page import until_metric
from tests.integration.stack import Stack, eventually

pytestmark = pytest.mark.envoy

TOPICS = ("tides", "harbours", "locks", "canals", "ferries", "lighthouses", "dunes", "estuaries")
ANSWERS = 300
AT_ONCE = 8
_SUM = re.compile(r"^envoy_admission_predicted_tokens_sum\{.*\} (\S+)$", re.MULTILINE)
_COUNT = re.compile(r"^envoy_admission_predicted_tokens_count\{.*\} (\S+)$", re.MULTILINE)


async def ask(stack: Stack, prompt: str, tokens: int) -> None:
    """One streamed chat whose answer has that many tokens."""
    async with stack.chat(
        stream=True,
        messages=[{"role": "user", "content": prompt}],
        metadata={"sim_completion_tokens": str(tokens)},
        stream_options={"include_usage": True},
    ) as response:
        assert response.status == 200
        await response.read()


async def ask_all(stack: Stack, asked: list[tuple[str, int]]) -> None:
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(prompt: str, tokens: int) -> None:
        async with turns:
            await ask(stack, prompt, tokens)

    await asyncio.gather(*(one(prompt, tokens) for prompt, tokens in asked))


async def predicted_sum(stack: Stack, count: int) -> float:
    """Sum of Envoy's predicted_tokens over all tags, once it counts so many: histograms appear with a flush."""

    async def read() -> tuple[float, float]:
        page = await stack.admin.prometheus()
        return sum(map(float, _SUM.findall(page))), sum(map(float, _COUNT.findall(page)))

    total, _ = await eventually(read, lambda now: bool(now[1] == count), what=f"{count} predictions")
    return float(total)


async def mean_predicted(stack: Stack, asked: list[tuple[str, int]], *, before: int) -> float:
    """Mean that Envoy's stat shows for these requests, after `before` others."""
    total = await predicted_sum(stack, before)
    await ask_all(stack, asked)
    return (await predicted_sum(stack, before + len(asked)) - total) / len(asked)


async def test_two_kinds_of_prompts_of_one_tenant_are_told_apart(stack: StackFactory) -> None:
    """After 300 streamed answers the predicted_tokens stat of short and of long answers is each near its truth."""
    running = await stack(engine_arguments=["--time-scale", "0.02"], policy={"tidegate-queue-len-max": "100"})
    lengths = Random(3)

    def short(number: int) -> tuple[str, int]:
        return f"Answer yes or no: are {TOPICS[number % 8]} older than {1000 + number}?", lengths.randint(6, 12)

    def essay(number: int) -> tuple[str, int]:
        return f"Write a detailed essay about {TOPICS[number % 8]} since {1000 + number}.", lengths.randint(240, 360)

    await ask_all(running, [short(number) if number % 2 else essay(number) for number in range(ANSWERS)])
    await until_metric(running.ops_url, "scored_answers_total", ANSWERS)
    shorts, essays = ([kind(number) for number in range(20)] for kind in (short, essay))
    assert await mean_predicted(running, shorts, before=ANSWERS) == pytest.approx(9, rel=0.5)
    assert await mean_predicted(running, essays, before=ANSWERS + 20) == pytest.approx(300, rel=0.25)
    assert await running.counter("no_decision") == 0
