"""What is known of a request once it is over: the log line, Envoy's tagged stats, and what the estimator learns."""

import asyncio
import json
from random import Random

import pytest
from envoy.data.accesslog.v3.accesslog_pb2 import HTTPAccessLogEntry

from tests.integration.conftest import PuppetStackFactory
from tests.integration.puppet_engine import Call
from tests.integration.puppet_stack import ONE_SLOT, PuppetStack
from tests.integration.raw_envoy import RawEnvoy

pytestmark = pytest.mark.envoy

ACME = {"x-tenant": "acme"}
BY_TENANT: dict[str, str | None] = {"tidegate-tenant-from": "header:x-tenant"}
TAGS = 'tenant="acme",model="tiny",decision="admit"'


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def stream_slowly(stack: PuppetStack) -> float:
    """A stream whose headers come long before its first token; how long the engine kept the latter, in seconds."""
    asked = stack.ask(stream=True, headers=ACME)
    call = await stack.engine.call()
    call.begin()
    await stack.until_counter("cluster.engine.upstream_rq_active")
    kept_s = now_s() - call.at_s
    call.complete(prompt_tokens=8, completion_tokens=7)
    assert (await asked).status == 200
    return kept_s


async def test_a_stream_and_a_whole_answer(puppet: PuppetStackFactory) -> None:
    """Tokens and times of both are in the log and in Envoy's stats; only the stream has a time to first token."""
    stack = await puppet(policy=BY_TENANT)
    kept_s = await stream_slowly(stack)
    stack.engine.script = lambda call: call.complete(prompt_tokens=9, completion_tokens=5)
    assert (await stack.ask(headers=ACME)).status == 200
    stream, whole = await stack.service.requests(2)
    for line, tokens in ((stream, (8, 7)), (whole, (9, 5))):
        assert (line["prompt_tokens"], line["completion_tokens"]) == tokens
        assert (line["tenant"], line["model"], line["pool"]) == ("acme", "tiny", "engine")
        assert (line["decision"], line["reason"], line["ending"], line["status"]) == (
            "admit", "capacity", "complete", 200,
        )  # fmt: skip
        assert (line["attempts"], line["hold_ms"]) == (1, 0)
        assert line["engine"].startswith("127.0.0.1:")
        assert 0 < line["e2e_ms"] <= line["duration_ms"]
    assert kept_s * 1000 <= stream["ttft_ms"] <= stream["e2e_ms"]
    assert "ttft_ms" not in whole
    assert (stream["stream"], whole["stream"]) == (True, False)
    page = await stack.until_prometheus(f"envoy_admission_hold_ms_count{{{TAGS}}} 2")
    assert f"envoy_admission_ttft_ms_count{{{TAGS}}} 1" in page
    assert f"envoy_admission_completion_tokens_total{{{TAGS}}} 12" in page
    assert f"envoy_admission_prompt_tokens_total{{{TAGS}}} 17" in page
    assert await stack.service.metric("completion_tokens_total", pool="engine") == 12
    await stack.assert_sound()


async def test_every_decision_is_counted_by_tenant_and_model(puppet: PuppetStackFactory) -> None:
    """Admit, delay, reject and pass each have a series in Envoy and a line in the log; nothing goes undecided."""
    stack = await puppet(policy=BY_TENANT | ONE_SLOT)
    admitted = stack.ask(headers=ACME)
    running = await stack.engine.call()
    delayed = stack.ask(headers=ACME)
    await stack.held(1)
    stack.engine.script = lambda call: call.complete()
    long_prompt = [{"role": "user", "content": "word " * 60000}]  # its own prefill takes longer than anyone waits
    assert (await stack.ask(headers=ACME, messages=long_prompt)).status == 429
    async with stack.http.get("/v1/chat/completions", headers=ACME) as response:
        assert response.status == 200
    assert (await stack.ask("/pooling", headers=ACME)).status == 200
    running.complete()
    assert (await admitted).status == (await delayed).status == 200
    lines = await stack.service.requests(5)
    assert sorted(line["decision"] for line in lines) == ["admit", "admit", "delay", "pass", "reject"]
    assert {line["tenant"] for line in lines} == {"acme"}
    for model, decision in (
        ("tiny", "admit"), ("tiny", "delay"), ("tiny", "reject"), ("", "pass"), ("", "admit"),
    ):  # fmt: skip
        assert await stack.until_counter(f"requests.tenant.acme.model.{model}.decision.{decision}") == 1
    assert await stack.counter("rejects.tenant.acme.model.tiny.reason.wait_too_long") == 1
    (reject,) = [line for line in lines if line["decision"] == "reject"]
    assert (reject["ending"], reject["status"], reject["attempts"]) == ("rejected", 429, 0)
    assert reject["details"] == "tidegate_wait_too_long"
    await stack.assert_sound()


async def test_a_client_that_leaves_is_client_cancelled(puppet: PuppetStackFactory) -> None:
    """Whether held, before the first token or in the middle: the ending says so, and no_decision stays at zero."""
    stack = await puppet(policy=BY_TENANT | ONE_SLOT)
    stack.engine.script = Call.event
    async with stack.chat(stream=True, headers=ACME) as response:
        held = stack.ask(headers=ACME)
        await stack.held(1)
        held.cancel()
        await stack.held(0)
        (line,) = await stack.service.requests(1)
        assert (line["decision"], line["ending"], line["attempts"]) == ("pending", "client_cancelled", 0)
        stack.engine.calls[0].event({"choices": [], "usage": {"prompt_tokens": 8, "completion_tokens": 4}})
        while b"usage" not in await response.content.readany():
            pass
        response.close()
    call = await stack.engine.call()
    await asyncio.wait_for(call.gone.wait(), 5.0)
    line = (await stack.service.requests(2))[1]
    assert (line["decision"], line["ending"], line["stream"]) == ("admit", "client_cancelled", True)
    assert line["completion_tokens"] == await stack.service.metric("wasted_tokens_total") == 4
    stack.engine.script = None
    silent = stack.ask(stream=True, headers=ACME)
    call = await stack.engine.call()
    silent.cancel()
    await asyncio.wait_for(call.gone.wait(), 5.0)
    line = (await stack.service.requests(3))[2]
    assert (line["ending"], "ttft_ms" in line) == ("client_cancelled", False)
    assert await stack.service.metric("outcomes_total", ending="client_cancelled") == 3
    assert await stack.until_counter("decision.pending") == 1
    await stack.assert_sound()


async def test_the_estimator_learns_what_answers_are_like(puppet: PuppetStackFactory) -> None:
    """After sixty streamed answers of about fifty tokens the prediction is near fifty, whatever cap callers state."""
    stack = await puppet(policy=BY_TENANT)
    lengths = Random(7)

    def answer(call: Call) -> None:
        call.complete(completion_tokens=lengths.randint(45, 55))

    stack.engine.script = answer
    for _ in range(60):
        assert (await stack.ask(stream=True, headers=ACME, max_tokens=16384)).status == 200
    await stack.service.until("outcomes_total", 60, ending="complete")
    assert (await stack.ask(stream=True, headers=ACME, max_tokens=16384)).status == 200
    lines = await stack.service.requests(61)
    assert lines[0]["predicted_tokens"] > 100
    assert 45 <= lines[-1]["predicted_tokens"] <= 60
    assert 50 <= lines[-1]["reserved_tokens"] <= 75
    assert await stack.service.metric("unlearned_total") == 0
    await stack.until_prometheus(f"envoy_admission_predicted_tokens_count{{{TAGS}}} 61")
    await stack.assert_sound()


async def test_a_repeated_entry_settles_once(puppet: PuppetStackFactory) -> None:
    """An entry that is sent again, by itself or twice in a batch, is counted as repeated and changes nothing else."""
    stack = await puppet()
    stack.engine.script = lambda call: call.complete()
    assert (await stack.ask()).status == 200
    (line,) = await stack.service.requests(1)
    entry = HTTPAccessLogEntry()
    entry.response.response_code.value = 200
    spaces = entry.common_properties.metadata.filter_metadata
    (listening,) = stack.service.lines("listening")
    spaces["admission"].update(
        {"id": line["id"], "replica": listening["replica"], "pool": "engine", "decision": "admit", "stream": False}
    )
    spaces["usage"].update({"prompt_tokens": 1000, "completion_tokens": 1000})
    async with RawEnvoy(stack.service.port, {}) as envoy:
        await envoy.log([entry])
        await envoy.log([entry, entry])
    assert await stack.service.metric("repeated_outcomes_total") == 3
    assert await stack.service.metric("outcomes_total") == 1
    assert await stack.service.metric("completion_tokens_total") == 3
    assert [each.get("repeated", False) for each in await stack.service.requests(4)] == [False, True, True, True]
    await stack.assert_sound()


async def test_refusals_and_failures_of_the_engine(puppet: PuppetStackFactory) -> None:
    """503 and 429, by status or by an error event after a 200, are refusals; another error is a failure."""
    stack = await puppet()

    def fail(call: Call) -> None:
        plan = json.loads(call.body)["user"]
        if plan.startswith("event"):
            code = int(plan.removeprefix("event"))
            call.event({"error": {"message": "no", "type": "server_error", "code": code}})
            call.end()
        else:
            call.answer(b'{"error": {"message": "no"}}', status=int(plan))

    stack.engine.script = fail
    expected = {
        "503": "engine_refused", "429": "engine_refused", "event503": "engine_refused", "event429": "engine_refused",
        "event500": "engine_failed", "500": "engine_failed", "400": "bad_request",
    }  # fmt: skip
    for plan in expected:
        assert (await stack.ask(user=plan, stream=plan.startswith("event"))).status in {200, 400, 429, 500, 503}
    lines = await stack.service.requests(len(expected))
    assert [line["ending"] for line in lines] == list(expected.values())
    assert await stack.until_counter("admission.stream_errors", 3) == 3
    assert not any("completion_tokens" in line for line in lines)
    await stack.assert_sound()
