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


async def predicted(stack: Stack) -> tuple[float, float]:
    """Sum and count of Envoy's predicted_tokens, over all tags."""
    page = await stack.admin.prometheus()
    return sum(map(float, _SUM.findall(page))), sum(map(float, _COUNT.findall(page)))


async def mean_predicted(stack: Stack, asked: list[tuple[str, int]]) -> float:
    """Mean that Envoy's stat shows for these requests."""
    total, count = await predicted(stack)
    await ask_all(stack, asked)
    later_total, later_count = await eventually(
        lambda: predicted(stack), lambda now: bool(now[1] == count + len(asked)), what="the predictions"
    )
    return float((later_total - total) / (later_count - count))


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
    assert await mean_predicted(running, [short(number) for number in range(20)]) == pytest.approx(9, rel=0.5)
    assert await mean_predicted(running, [essay(number) for number in range(20)]) == pytest.approx(300, rel=0.25)
    assert await running.counter("no_decision") == 0
