"""Two thousand requests at once: each has a stream to the service, and none may be turned away for that."""

import asyncio
import resource
from collections.abc import Iterator

import aiohttp
import pytest

from tests.integration.conftest import GatedStackFactory
from tests.integration.gated_stack import GatedStack
from tests.integration.stack import eventually
from tidegate.sim.envoy_config import ENGINE_CLUSTER, Config, cluster

pytestmark = pytest.mark.envoy
REQUESTS = 2000
WAVE = 100
FILES_NEEDED = 3 * REQUESTS
"""Here a socket for each request at either end, in Envoy two as well, and some to spare."""

ALL_LOGGED = {"written": REQUESTS, "dropped": 0, "taken_in": REQUESTS, "complete": REQUESTS, "repeated": 0, "errors": 0}
POLICY: dict[str, str | None] = {
    "tidegate-slots-max": str(5 * REQUESTS),  # a new pool starts at a quarter of it
    "tidegate-kv-tokens-max": "100000000",
    "tidegate-gates": "slots,kv",  # nobody answers until all are there, so nothing tells how fast prompts are done
}


@pytest.fixture
def many_files() -> Iterator[None]:
    """As many open files as the system allows, also for the processes that the test starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = hard == resource.RLIM_INFINITY or hard >= FILES_NEEDED
    assert enough, f"this test opens {FILES_NEEDED} files a process, the hard limit is {hard}: raise it (ulimit -Hn)"
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, FILES_NEEDED), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def roomy_engine(config: Config) -> None:
    """The engine's breaker out of the way; that of the service's cluster stays as shipped."""
    thresholds = cluster(config, ENGINE_CLUSTER)["circuit_breakers"]["thresholds"][0]
    for bound in ("max_connections", "max_pending_requests", "max_requests"):
        thresholds[bound] = 2 * REQUESTS


async def log_entries(stack: GatedStack) -> dict[str, float]:
    """What became of the access log's entries, from Envoy to the books."""
    return {
        "written": await stack.counter("grpc_access_log.logs_written"),
        "dropped": await stack.counter("grpc_access_log.logs_dropped"),
        "taken_in": await stack.service.metric("outcomes_total"),
        "complete": await stack.service.metric("outcomes_total", ending="complete"),
        "repeated": await stack.service.metric("repeated_outcomes_total"),
        "errors": await stack.service.metric("internal_errors_total"),
    }


@pytest.mark.usefixtures("many_files")
async def test_two_thousand_requests_at_once_all_complete(gated: GatedStackFactory) -> None:
    """All are admitted and in flight at the same moment, none overflows on the way to tidegate, and all complete."""
    stack = await gated(policy=POLICY, edit=roomy_engine)
    body = {"model": "tiny", "stream": True, "max_tokens": 1, "messages": [{"role": "user", "content": "Hello"}]}
    async with aiohttp.ClientSession(stack.url, connector=aiohttp.TCPConnector(limit=0)) as http:

        async def ask() -> int:
            async with http.post("/v1/chat/completions", json=body) as response:
                assert response.status == 200
                assert "x-tidegate-queue-ms" in response.headers
                return len(await response.read())

        requests = []
        for count in range(WAVE, REQUESTS + 1, WAVE):  # the backlog of the engine's socket is no part of the test
            requests += [asyncio.create_task(ask()) for _ in range(WAVE)]
            await stack.at_engine(count)
        assert await stack.service.metric("pool_in_flight") == REQUESTS
        assert await stack.service.metric("open_streams") == REQUESTS
        assert await stack.counter("cluster.ext_proc.upstream_rq_active") >= REQUESTS
        stack.release()
        assert min(await asyncio.gather(*requests)) > 0
    await stack.service.until("decisions_total", REQUESTS, decision="admit")
    await eventually(lambda: log_entries(stack), lambda seen: bool(seen == ALL_LOGGED), what="every entry of the log")
    assert await stack.counter("upstream_rq_pending_overflow") == 0
    assert await stack.counter("upstream_rq_active_overflow") == 0
    assert await stack.counter("ext_proc.admission.failure_mode_allowed") == 0
    await stack.assert_sound()
