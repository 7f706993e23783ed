"""The whole stack as users run it: engine, tidegate and Envoy, each a process of its own."""

import signal

import pytest

from tests.integration.conftest import StackFactory

pytestmark = pytest.mark.envoy


async def test_every_request_is_decided_and_counted(stack: StackFactory) -> None:
    """Answers, streams and a GET are decided, counted by tenant, and none of the processes complains."""
    running = await stack(policy={"tidegate-tenant-from": "header:x-tenant"})
    async with running.chat(headers={"x-tenant": "acme"}, max_tokens=5) as response:
        assert response.status == 200
        assert int(response.headers["x-tidegate-queue-ms"]) >= 0
    options = {"include_usage": True}
    async with running.chat(
        stream=True, headers={"x-tenant": "acme"}, max_tokens=5, stream_options=options
    ) as response:
        assert (await response.read()).endswith(b"data: [DONE]\n\n")
    async with running.http.get("/v1/chat/completions") as response:
        assert response.status == 405
    assert await running.until_counter("admission.requests.tenant.acme", 2) == 2
    assert await running.until_counter("admission.requests.tenant..model..decision.pass") == 1
    assert await running.counter("completion_tokens_total.tenant.acme") == 10
    assert await running.counter("no_decision") == 0
    assert await running.counter("rejected_header_mutations") == 0
    assert await running.counter("spurious_msgs_received") == 0
    assert running.error_lines() == []


async def test_a_killed_service_costs_no_request(stack: StackFactory) -> None:
    """With tidegate killed requests pass undecided, and once it is back they are decided again."""
    running = await stack()
    running.tidegate.signal(signal.SIGKILL)
    await running.tidegate.wait()
    async with running.chat(max_tokens=2) as response:
        assert response.status == 200
    assert await running.until_counter("no_decision.code.200") == 1
    await running.restart_tidegate()
    async with running.chat(max_tokens=2) as response:
        assert response.status == 200
    assert await running.until_counter("decision.admit") > 0
    assert await running.counter("no_decision") == 1
