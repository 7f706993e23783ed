"""The real llama.cpp behind the real Envoy: admitted, held, refused, left, learned from, and its page is true."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from statistics import fmean

import pytest

from tests.integration.conftest import factory
from tests.integration.llama_stack import LONG, llama_stack, slots_busy
from tests.integration.real_stack import RealStack
from tests.tiny_gguf import EOS, write_tiny_model

pytestmark = pytest.mark.envoy

LlamaStackFactory = Callable[..., Awaitable[RealStack]]
PATIENT: dict[str, str | None] = {"tidegate-ttft-budget-ms": "60000", "tidegate-queue-len-max": "1"}
"""One may wait, for as long as it takes."""
NO_QUEUE: dict[str, str | None] = {"tidegate-queue-len-max": "0"}


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model's file."""
    path = tmp_path_factory.mktemp("llama") / "tiny.gguf"
    write_tiny_model(path)
    return path


@pytest.fixture
async def llama(tmp_path: Path, model: Path) -> AsyncIterator[LlamaStackFactory]:
    """Starts engine, tidegate and Envoy: `await llama(slots=2)`; arguments as of `llama_stack`."""
    async with factory(llama_stack, tmp_path) as start:

        async def with_model(**arguments: object) -> RealStack:
            return await start(model=model, **arguments)

        yield with_model


async def test_a_stream_and_a_whole_answer(llama: LlamaStackFactory) -> None:
    """Both are admitted, and the tokens that the engine told its clients are those in the log and in Envoy's stats."""
    stack = await llama()
    told = [await stack.streamed(max_tokens=40, ignore_eos=True), await stack.whole(max_tokens=7, ignore_eos=True)]
    assert [usage.completion_tokens for usage in told] == [40, 7]
    lines = await stack.service.requests(2)
    for line, usage in zip(lines, told, strict=True):
        assert (line["decision"], line["ending"], line["status"], line["model"]) == ("admit", "complete", 200, "tiny")
        assert (line["prompt_tokens"], line["completion_tokens"]) == (usage.prompt_tokens, usage.completion_tokens)
        assert "inferred" not in line
    assert 0.0 < lines[0]["ttft_ms"] <= lines[0]["e2e_ms"]
    assert await stack.until_counter("admission.completion_tokens_total", 47) == 47
    assert await stack.counter("admission.prompt_tokens_total") == sum(usage.prompt_tokens for usage in told)
    await stack.service.assert_sound()


async def test_the_queue_is_here_and_not_in_the_engine(llama: LlamaStackFactory) -> None:
    """Behind a full engine one waits, the next gets a 429, and who waited is served as soon as the slot is free."""
    stack = await llama(policy=PATIENT)
    long = stack.ask(**LONG)
    await stack.until_engine_runs(1)
    held = stack.ask(max_tokens=5)
    await stack.service.until("pool_queue_len", 1)
    refused = await stack.ask(max_tokens=5)
    assert (refused.status, refused.error["code"]) == (429, "queue_full")
    assert int(refused.headers["retry-after"]) >= 1
    await stack.until_engine_runs(1, waiting=0)
    assert not held.done()
    long.cancel()
    answer = await held
    assert (answer.status, answer.queue_ms > 0) == (200, True)
    for decision in ("admit", "delay", "reject"):
        assert await stack.service.metric("decisions_total", decision=decision) == 1, decision
    await stack.until_engine_runs(0)
    await stack.service.assert_sound()


async def test_a_client_that_leaves_frees_its_slot(llama: LlamaStackFactory) -> None:
    """The engine stops at once, tens of thousands of tokens early, and both it and tidegate have the slot free."""
    stack = await llama(policy=NO_QUEUE)
    leaving = stack.ask(**LONG)
    await stack.until_engine_runs(1)
    assert await slots_busy(stack) == 1
    assert await stack.service.metric("pool_in_flight") == 1
    assert (await stack.ask(max_tokens=3)).status == 429
    leaving.cancel()
    await stack.until_engine_runs(0)
    assert await slots_busy(stack) == 0
    await stack.service.until("pool_in_flight", 0)
    await stack.service.until("outcomes_total", 1, ending="client_cancelled")
    assert (await stack.whole(max_tokens=3, ignore_eos=True)).completion_tokens == 3
    await stack.service.assert_sound()


async def test_answers_teach_the_length_of_the_next(llama: LlamaStackFactory) -> None:
    """Answers that end far before max_tokens: all are counted, and what is predicted comes down to what they use."""
    stack = await llama()
    told = [await stack.whole(max_tokens=1000, seed=seed, logit_bias={str(EOS): 1.5}) for seed in range(40)]
    lengths = [usage.completion_tokens for usage in told]
    assert 3 < fmean(lengths) < 30  # one token in ten or so ends the answer
    lines = await stack.service.requests(40)
    assert [line["completion_tokens"] for line in lines] == lengths
    assert await stack.service.metric("completion_tokens_total") == sum(lengths)
    assert await stack.until_counter("admission.completion_tokens_total", sum(lengths)) == sum(lengths)
    first, last = lines[0]["predicted_tokens"], lines[-1]["predicted_tokens"]
    assert last < first / 2
    assert last < 3 * fmean(lengths)
    assert await stack.service.metric("scored_answers_total", model="tiny") == 40
    await stack.service.assert_sound()


async def test_the_page_is_true(llama: LlamaStackFactory) -> None:
    """Requests past Envoy: as many run and wait as the engine's page is read to say, and tidegate's gauges follow."""
    stack = await llama(slots=2)
    assert (await stack.whole(max_tokens=1)).completion_tokens == 1
    idle = await stack.reading()
    assert (idle.running, idle.waiting, await slots_busy(stack)) == (0, 0, 0)
    strangers = [stack.ask(past_envoy=True, **LONG) for _ in range(2)]
    await stack.until_engine_runs(2)
    strangers.append(stack.ask(past_envoy=True, **LONG))
    await stack.until_engine_runs(2, waiting=1)
    assert await slots_busy(stack) == 2
    later = await stack.reading()
    assert 0 < (idle.steps_total or 0) < (later.steps_total or 0)
    engine = stack.engine_url.removeprefix("http://")
    await stack.service.until("engine_running", 2, engine=engine)
    await stack.service.until("engine_waiting", 1, engine=engine)
    for task in strangers[:2]:
        task.cancel()
    await stack.until_engine_runs(1)
    await stack.service.until("engine_running", 1, engine=engine)
    assert await stack.service.metric("polls_total", end="read") == await stack.service.metric("polls_total") > 0


async def test_connections_that_the_engine_closes_cost_no_answer(llama: LlamaStackFactory) -> None:
    """llama.cpp closes its connection after each stream without saying so before: what follows is answered as well."""
    stack = await llama()
    for _ in range(30):
        assert (await stack.streamed(max_tokens=2, ignore_eos=True)).completion_tokens == 2
        assert (await stack.whole(max_tokens=2, ignore_eos=True)).completion_tokens == 2
    await stack.service.until("outcomes_total", 60, ending="complete")
    assert await stack.counter("cluster.engine.upstream_cx_total") >= 30  # so it did close them
    await stack.service.assert_sound()
