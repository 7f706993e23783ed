"""Each verdict as clients and operators see it, through the real Envoy and the real service."""

import asyncio

import openai
import pytest

from tests.integration.conftest import PuppetStackFactory
from tests.integration.puppet_stack import IN_ORDER, ONE_SLOT, REFUSE_ALL_ELSE, PuppetStack
from tidegate.sim.envoy_config import Config, ext_proc_filter

pytestmark = pytest.mark.envoy

MESSAGES: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": "Hello"}]


def client_of(stack: PuppetStack) -> openai.AsyncOpenAI:
    """OpenAI's own client, told not to try again."""
    return openai.AsyncOpenAI(base_url=f"{stack.url}/v1", api_key="none", max_retries=0)


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def test_admit(puppet: PuppetStackFactory) -> None:
    """A request that finds room goes to the engine at once and says that it did not wait."""
    stack = await puppet(policy=ONE_SLOT)
    asked = stack.ask(headers={"x-own": "kept"})
    call = await stack.engine.call()
    assert await stack.service.metric("pool_in_flight") == 1
    call.complete()
    answer = await asked
    assert (answer.status, answer.queue_ms) == (200, 0)
    assert call.headers["x-own"] == "kept"
    assert await stack.service.metric("decisions_total", decision="admit", reason="capacity") == 1
    await stack.assert_sound()


async def test_hold_then_admit(puppet: PuppetStackFactory) -> None:
    """A request that finds no room waits in front of the engine, goes when the slot comes back, and says how long."""
    stack = await puppet(policy=ONE_SLOT)
    first = stack.ask()
    running = await stack.engine.call()
    sent_s = now_s()
    second = stack.ask()
    await stack.held(1)
    held_s = now_s()
    assert await stack.counter("cluster.engine.upstream_rq_active") == 1
    freed_s = now_s()
    running.complete()
    call = await stack.engine.call()
    call.complete()
    answer = await second
    assert (await first).status == answer.status == 200
    assert (freed_s - held_s) * 1000 - 1 <= answer.queue_ms <= (call.at_s - sent_s) * 1000 + 1
    await stack.until_counter("admission.requests.tenant..model.tiny.decision.delay")
    assert await stack.service.metric("decisions_total", decision="delay", reason="slots") == 1
    await stack.until_prometheus('envoy_admission_hold_ms_count{tenant="",model="tiny",decision="delay"} 1')
    delayed = (await stack.service.requests(2))[1]
    assert (delayed["decision"], delayed["reason"], delayed["hold_ms"]) == ("delay", "slots", answer.queue_ms)
    await stack.assert_sound()


async def test_429(puppet: PuppetStackFactory) -> None:
    """Too many: a 429 in the API's own words, when to come back, and the rule with its figures."""
    stack = await puppet(policy=ONE_SLOT | IN_ORDER | {"tidegate-queue-len-max": "2"})
    asked = [stack.ask()]
    calls = [await stack.engine.call()]
    asked.append(stack.ask(max_tokens=None))
    await stack.held(1)
    slow = await stack.ask()
    assert slow.status == 429
    rule, measured, threshold, unit = slow.headers["x-tidegate-reason"].split("; ")
    assert (rule, threshold, unit) == ("wait_too_long", "threshold=1", "unit=s")
    assert float(measured.removeprefix("measured=")) > 1.0
    assert (slow.error["type"], slow.error["code"]) == ("rate_limit_error", "wait_too_long")
    assert slow.error["message"]
    assert slow.headers["content-type"] == "application/json"
    retry_after_s, retry_after_ms = int(slow.headers["retry-after"]), int(slow.headers["retry-after-ms"])
    assert retry_after_s >= 1
    assert abs(retry_after_s * 1000 - retry_after_ms) <= 1000
    assert "x-should-retry" not in slow.headers
    calls[0].complete()
    calls.append(await stack.engine.call())
    asked += [stack.ask(), stack.ask()]
    await stack.held(2)
    full = await stack.ask()
    assert full.headers["x-tidegate-reason"] == "queue_full; measured=2; threshold=2; unit=requests"
    assert (full.status, full.error["code"]) == (429, "queue_full")
    stack.engine.script = lambda call: call.complete()
    calls[1].complete()
    assert {(await each).status for each in asked} == {200}
    assert len(stack.engine.calls) == len(asked)
    assert await stack.until_counter("decision.reject", 2) == 2
    await stack.assert_sound()


async def test_429_as_openai_s_client_sees_it(puppet: PuppetStackFactory) -> None:
    """OpenAI's own client raises RateLimitError with the code, the request's own headers and the message."""
    stack = await puppet(policy=REFUSE_ALL_ELSE)
    running = stack.ask()
    call = await stack.engine.call()
    async with client_of(stack) as client:
        with pytest.raises(openai.RateLimitError, match="Please retry after the time given") as caught:
            await client.chat.completions.create(model="tiny", messages=MESSAGES)
        assert (caught.value.code, caught.value.type) == ("queue_full", "rate_limit_error")
        assert int(caught.value.response.headers["retry-after-ms"]) >= 1000
        with pytest.raises(openai.RateLimitError):
            await client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
    call.complete()
    assert (await running).status == 200
    await stack.assert_sound()


async def test_503_at_the_end_of_a_hold(puppet: PuppetStackFactory) -> None:
    """A hold that outlasts the message timeout is announced, and ends with a 503 in time: never with an admit."""

    def impatient(config: Config) -> None:
        ext_proc_filter(config)["message_timeout"] = "0.5s"

    policy = ONE_SLOT | {"tidegate-message-timeout-ms": "500", "tidegate-ttft-budget-ms": "1200"}
    stack = await puppet(policy=policy, edit=impatient)
    running = stack.ask()
    call = await stack.engine.call()
    answer = await stack.ask()
    assert (answer.status, answer.error["code"], answer.error["type"]) == (503, "expired", "server_error")
    assert answer.headers["x-tidegate-reason"].startswith("expired; measured=")
    assert int(answer.headers["retry-after"]) >= 1
    assert 500 < answer.queue_ms < 1200
    assert await stack.counter("override_message_timeout_received") == 1
    assert await stack.counter("override_message_timeout_ignored") == 0
    call.complete()
    assert (await running).status == 200
    assert len(stack.engine.calls) == 1
    await stack.assert_sound()


async def test_413_for_what_can_never_fit(puppet: PuppetStackFactory) -> None:
    """A request larger than a stated limit is a 413 that tells clients not to try again, and they heed it."""
    stack = await puppet(policy={"tidegate-slots-max": "8", "tidegate-kv-tokens-max": "1000"})
    long = await stack.ask(messages=[{"role": "user", "content": "word " * 8000}])
    wide = await stack.ask(n=9)
    for answer, unit in ((long, "tokens"), (wide, "sequences")):
        assert (answer.status, answer.error["code"]) == (413, "request_too_large")
        assert answer.headers["x-should-retry"] == "false"
        assert not {"retry-after", "retry-after-ms"} & answer.headers.keys()
        assert answer.headers["x-tidegate-reason"].endswith(f"unit={unit}")
    async with client_of(stack).with_options(max_retries=2) as client:
        with pytest.raises(openai.APIStatusError) as caught:
            await client.chat.completions.create(model="tiny", messages=MESSAGES, n=9)
    assert caught.value.status_code == 413
    assert await stack.service.metric("decisions_total", reason="request_too_large") == 3
    assert stack.engine.calls == []
    await stack.assert_sound()


async def test_bodyless_requests_pass(puppet: PuppetStackFactory) -> None:
    """A GET on an inference path passes whatever the load, is counted, and books nothing."""
    stack = await puppet(policy=REFUSE_ALL_ELSE)
    running = stack.ask()
    call = await stack.engine.call()
    stack.engine.script = lambda call: call.answer(status=405)
    async with stack.http.get("/v1/chat/completions") as response:
        assert response.status == 405
    async with stack.http.post("/v1/chat/completions") as response:  # content-length: 0
        assert response.status == 405
    assert await stack.service.metric("decisions_total", decision="pass", reason="bodyless") == 2
    assert await stack.service.metric("pool_in_flight") == 1
    call.complete()
    assert (await running).status == 200
    await stack.assert_sound()


async def test_unknown_apis_are_booked_and_never_refused(puppet: PuppetStackFactory) -> None:
    """A POST that nobody can price goes at once even into a full pool, takes a slot, and is counted."""
    stack = await puppet(policy=REFUSE_ALL_ELSE)
    asked = [stack.ask()]
    calls = [await stack.engine.call()]
    for path in ("/pooling", "/v1/audio/isolation", "/generate", "/classify"):
        asked.append(stack.ask(path, input="Hello"))
        calls.append(await stack.engine.call())
        unknown = len(calls) - 1
        assert calls[-1].path == path
        assert await stack.service.metric("pool_in_flight") == 1 + unknown
        assert await stack.service.metric("default_cost_total", why="unknown_api") == unknown
        assert await stack.service.metric("decisions_total", decision="admit", reason="unknown_api") == unknown
    assert (await stack.ask()).status == 429
    for call in calls:
        call.complete()
    assert {(await each).status for each in asked} == {200}
    reasons = sorted(line["reason"] for line in await stack.service.requests(6))
    assert reasons == ["capacity", "queue_full", *["unknown_api"] * 4]
    await stack.assert_sound()
