"""Real client libraries under an overload that lasts: what they do together, through the real Envoy and service."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path

import pytest

from tests.integration.sdk_clients import run_lanes
from tests.integration.sdk_jobs import Client, Job, Lane, Outcome
from tests.integration.sdk_node import install_node_client
from tests.integration.sdk_tries import Try, TryLog
from tests.integration.stack import Stack, tidegate_stack
from tidegate.sim.processes import free_ports

pytestmark = pytest.mark.envoy

DURATION_S = 8.0
CLIENTS = (Client.OPENAI_PYTHON, Client.OPENAI_NODE)
"""The simulated engine does not speak Anthropic's API."""
LANES_PER_CLIENT = 10
SLOTS, QUEUE_LEN = 6, 4
"""So that half of the lanes have a place, running or waiting."""
RETRIES_MAX = 2
JOBS_PER_LANE = 200
TYPED = {("RateLimitError", 429), ("InternalServerError", 503)}
EARLY_S_MAX, LATE_S_MAX = 0.005, 2.0


@pytest.fixture
async def tries() -> AsyncIterator[TryLog]:
    """Keeps what Envoy saw."""
    (port,) = free_ports(1)
    async with TryLog(port) as log:
        yield log


def lane_of(stack: Stack, client: Client, number: int) -> Lane:
    """More jobs than a lane can do in its time: it is never idle; every other one is streamed."""
    return [
        Job(
            name=f"{client}/{number}/{index}",
            client=client,
            url=stack.url,
            stream=(number + index) % 2 == 0,
            retries_max=RETRIES_MAX,
            prompt=f"Hello from {client}, lane {number}, job {index}",
            max_tokens=24,
        )
        for index in range(JOBS_PER_LANE)
    ]


async def overload(log_dir: Path, tries: TryLog) -> Mapping[str, Outcome]:
    """Twice as many clients as there are places, for a few seconds; how each job ended."""
    policy = {"tidegate-slots-max": str(SLOTS), "tidegate-queue-len-max": str(QUEUE_LEN)}
    async with AsyncExitStack() as exits:
        stack = await exits.enter_async_context(
            tidegate_stack(log_dir, policy=policy, engine_arguments=("--slots", str(SLOTS)), edit=tries.configure)
        )
        lanes = [lane_of(stack, client, number) for client in CLIENTS for number in range(LANES_PER_CLIENT)]
        outcomes = await run_lanes(lanes, duration_s=DURATION_S)
        await tries.complete(stack)
        assert await stack.counter("no_decision") == 0
        assert stack.error_lines() == []
    return outcomes


def story(outcomes: Mapping[str, Outcome], tries: Mapping[str, Sequence[Try]]) -> str:
    """The run in a few figures, for whoever has to find out what went wrong."""
    lines = []
    for client in CLIENTS:
        names = [name for name in outcomes if name.startswith(client)]
        ends = Counter(outcomes[name].raised or "answered" for name in names)
        counts = Counter(len(tries[name]) for name in names)
        reasons = Counter(each.reason or str(each.status) for name in names for each in tries[name])
        lines.append(f"{client}: {len(names)} jobs {dict(ends)}; tries a job {dict(counts)}; answers {dict(reasons)}")
    return "\n".join(lines)


async def test_an_overload_that_lasts_makes_no_client_behave_badly(tmp_path: Path, tries: TryLog) -> None:
    """Each job ends with an answer or a typed error; whoever is refused comes back as told, and gives up in the end."""
    install_node_client()
    outcomes = await overload(tmp_path, tries)
    seen = {name: tries.of(name) for name in outcomes}
    told = story(outcomes, seen)
    print(told)
    for client in CLIENTS:
        mine = [outcome for name, outcome in outcomes.items() if name.startswith(client)]
        assert any(outcome.text for outcome in mine), told
        assert any(len(seen[outcome.job]) > 1 for outcome in mine), told
    for name, outcome in outcomes.items():
        assert (outcome.raised, outcome.status) in TYPED if outcome.raised else outcome.text, f"{outcome}\n{told}"
        check_tries(outcome, seen[name], told)


def check_tries(outcome: Outcome, tries: Sequence[Try], told: str) -> None:
    """An answered job ends with its only 200, one that raised has used its tries up; all others were refused."""
    statuses = [each.status for each in tries]
    assert [each.number for each in tries] == list(range(len(tries))), f"{outcome}\n{tries}\n{told}"
    if outcome.raised:
        assert len(tries) == RETRIES_MAX + 1, f"{outcome}\n{tries}\n{told}"
    else:
        assert statuses.pop() == 200, f"{outcome}\n{tries}\n{told}"
    assert set(statuses) <= {429, 503}, f"{outcome}\n{tries}\n{told}"
    for answered, following in pairwise(tries):
        pause_s = following.at_s - answered.answered_s
        assert answered.told_ms is not None, f"{outcome}\n{tries}\n{told}"
        early_s, late_s = answered.told_ms / 1000.0 - EARLY_S_MAX, answered.told_ms / 1000.0 + LATE_S_MAX
        assert early_s <= pause_s <= late_s, f"{outcome}\n{tries}\n{told}"
