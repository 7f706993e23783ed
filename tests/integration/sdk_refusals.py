"""Each client refused by each rule, once for all tests that look at it: what it raised, and when it tried again.

Rules that last refuse every try. Those that pass refuse the first one: then a slot comes free, an engine comes up, or a
service that shuts down is no longer asked.
"""

import asyncio
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path

from tests.integration.sdk_clients import run_lanes
from tests.integration.sdk_jobs import Client, Job, Outcome
from tests.integration.sdk_stack import Keys, SdkStack, sdk_stack
from tests.integration.sdk_tries import Try
from tests.integration.stack import eventually

ONE_SLOT = {"tidegate-slots-max": "1"}
PATIENT = {"tidegate-ttft-budget-ms": "60000"}
BOTH = (False, True)
RUN_S_MAX = 90.0
"""A client that waits for longer than any refusal tells it to has lost its way."""

SLOT_FREED = "slot_freed"
"""A pool whose queue is full at first."""
LASTING: Mapping[str, Keys] = {
    "queue_full": ONE_SLOT | {"tidegate-queue-len-max": "0"},
    "wait_too_long": ONE_SLOT | {"tidegate-queue-order": "fifo", "tidegate-ttft-budget-ms": "50"},
    "expired": ONE_SLOT | {"tidegate-mode": "backpressure-first", "tidegate-client-timeout-ms": "800"},
    "request_too_large": {"tidegate-kv-tokens-max": "200"},
}
WAITING = 6
OCCUPIED = ("queue_full", "wait_too_long", "expired")
"""Those that refuse because the only slot is taken."""
PASSING: Mapping[str, Keys] = {SLOT_FREED: ONE_SLOT | PATIENT | {"tidegate-queue-len-max": str(WAITING)}}
GONE: Mapping[str, Keys] = {"no_engine": {"tidegate-queue-len-max": "0"}}
SHUTTING_DOWN: Mapping[str, Keys] = {"shutting_down": ONE_SLOT | PATIENT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """What came of a job, and the tries it took."""

    outcome: Outcome
    tries: tuple[Try, ...]

    @property
    def pauses_s(self) -> list[float]:
        """Seconds from the last byte of each answer to the next try, as Envoy saw both."""
        return [later.at_s - earlier.answered_s for earlier, later in pairwise(self.tries)]


def name_of(rule: str, client: Client, stream: bool, *, once: bool = False) -> str:
    """The job of a client that meets this rule; `once`: it has been told never to try again."""
    return f"{rule}/{client}/{'stream' if stream else 'whole'}{'/once' if once else ''}"


async def refuse_all(log_dir: Path) -> dict[str, Refused]:
    """Run them all, the two services side by side; by job name."""
    async with asyncio.timeout(RUN_S_MAX), asyncio.TaskGroup() as group:
        runs = [group.create_task(_refuse(log_dir / "load")), group.create_task(_shut_down(log_dir / "shutdown"))]
    return {name: refused for run in runs for name, refused in run.result().items()}


async def _refuse(log_dir: Path) -> dict[str, Refused]:
    """Every rule but that of a service that shuts down."""
    async with sdk_stack(log_dir, {**LASTING, **PASSING}, gone=GONE) as stack:
        for rule in OCCUPIED:
            await stack.fill(rule)
        await stack.fill(SLOT_FREED, waiting=WAITING)
        async with asyncio.TaskGroup() as group:
            runs = [
                group.create_task(run_lanes([[job] for rule in LASTING for job in _jobs(stack, rule)])),
                group.create_task(_while_full(stack)),
                group.create_task(_while_away(stack)),
            ]
        await stack.tries.complete(stack)
        for rule in OCCUPIED:
            await stack.empty(rule)
        await stack.service.assert_sound()
        return _refused(stack, {name: outcome for run in runs for name, outcome in run.result().items()})


async def _while_full(stack: SdkStack) -> dict[str, Outcome]:
    """Clients that find a full queue at first."""
    jobs = _jobs(stack, SLOT_FREED)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(run_lanes([[job] for job in jobs]))
        await _all_tried(stack, jobs)
        await stack.empty(SLOT_FREED)
    return running.result()


async def _while_away(stack: SdkStack) -> dict[str, Outcome]:
    """Clients that find no engine at first."""
    (rule,) = GONE
    jobs = [*_jobs(stack, rule), *_jobs(stack, rule, once=True)]
    await stack.lose(rule)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(run_lanes([[job] for job in jobs]))
        await _all_tried(stack, jobs)
        async with stack.absent:
            await running
    return running.result()


async def _shut_down(log_dir: Path) -> dict[str, Refused]:
    """Clients that are held when the service is told to stop, and try again when it does not take any more."""
    (rule,) = SHUTTING_DOWN
    async with sdk_stack(log_dir, SHUTTING_DOWN, gone={}) as stack:
        jobs = [*_jobs(stack, rule), *_jobs(stack, rule, once=True)]
        await stack.fill(rule)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(run_lanes([[job] for job in jobs]))
            await stack.service.until("pool_queue_len", len(jobs), pool=rule)
            stack.service.child.signal(signal.SIGTERM)
        stack.engine.release(rule)
        assert await stack.service.child.wait() == 0
        await stack.tries.complete(stack)
        return _refused(stack, running.result())


def _jobs(stack: SdkStack, rule: str, *, once: bool = False) -> list[Job]:
    jobs = []
    for client, stream in product(Client, BOTH):
        name = name_of(rule, client, stream, once=once)
        prompt = f"Hello from {name}" + (" word" * 4000 if rule == "request_too_large" else "")
        retries_max = 0 if once else None
        url = f"{stack.url}/{rule}"
        jobs.append(Job(name=name, client=client, url=url, stream=stream, retries_max=retries_max, prompt=prompt))
    return jobs


async def _all_tried(stack: SdkStack, jobs: Sequence[Job]) -> None:
    async def silent() -> list[str]:
        return [job.name for job in jobs if not stack.tries.of(job.name)]

    await eventually(silent, lambda names: not names, what="a first try of everybody")


def _refused(stack: SdkStack, outcomes: Mapping[str, Outcome]) -> dict[str, Refused]:
    return {name: Refused(outcome=outcome, tries=stack.tries.of(name)) for name, outcome in outcomes.items()}
