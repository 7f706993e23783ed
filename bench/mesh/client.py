"""The clients: each job as a streamed chat completion, tried again as an SDK does.

Open loop: a job is sent at its moment, however many are open. A user leaves a stream whose first token does not come
within the read timeout, and one that is not done in time; once the answer's headers are there, that is the end of the
job, as it is with the SDKs: only what fails before them is tried again.
"""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

import aiohttp

from bench.goodput.workload import cost_s
from bench.mesh.job import Job
from bench.mesh.sdk import retry_delay_s
from tidegate.sim.arrivals import Arrival
from tidegate.sim.exchange import Call, Patience, try_once
from tidegate.sim.load import BYTES_PER_TOKEN, TENANT_HEADER
from tidegate.sim.profiles import EngineProfile
from tidegate.sim.record import End, Record

_WORDS = "the tide came in over the flat sand and the boats by the old pier began to lift one after one "
IN_FLIGHT_MAX = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """How they behave, and where they send.

    Attributes:
        url: of the chat completions endpoint.
        patience: read timeout of the first token, and time for the whole answer, from sending a try.
        openings: how a tenant's prompts begin.
        engine: says what a job costs.
        time_scale: real seconds of one second of life.
        drain_s_max: how long after the last arrival the run may last; jobs still open then are cut.
        seed: of the jitter of their pauses.
    """

    url: str
    patience: Patience
    openings: Mapping[str, str]
    engine: EngineProfile
    time_scale: float
    drain_s_max: float
    seed: int


async def send_all(arrivals: Sequence[Arrival], clients: Clients) -> tuple[Job, ...]:
    """Send every job and wait for its end; in the order of their ends."""
    run = _Run(clients, last_s=arrivals[-1].at_s if arrivals else 0.0)
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with (
        aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as session,
        asyncio.TaskGroup() as tasks,
    ):
        for number, arrival in enumerate(arrivals):
            await run.wait_until(arrival.at_s)
            if len(run.open) >= IN_FLIGHT_MAX:
                run.add(arrival, (Record(tenant=arrival.tenant, at_s=arrival.at_s, end=End.OVERFLOW),), cut=True)
                continue
            task = tasks.create_task(run.job(session, arrival, number))
            run.open.add(task)
            task.add_done_callback(run.open.discard)
    return tuple(run.jobs)


class _Run:
    """One run under way: its start on the event loop's clock, and the jobs that have ended."""

    def __init__(self, clients: Clients, *, last_s: float) -> None:
        self.jobs: list[Job] = []
        self.open: set[asyncio.Task[None]] = set()
        self._clients = clients
        self._loop = asyncio.get_running_loop()
        self._start_s = self._loop.time()
        self._end_s = self._start_s + last_s + clients.drain_s_max

    async def wait_until(self, at_s: float) -> None:
        if (left_s := self._start_s + at_s - self._loop.time()) > 0.0:
            await asyncio.sleep(left_s)

    def add(self, arrival: Arrival, tries: Sequence[Record], *, cut: bool) -> None:
        cost = cost_s(self._clients.engine, arrival.prompt_tokens, arrival.completion_tokens)
        self.jobs.append(Job(arrival=arrival, tries=tuple(tries), cost_s=cost, cut=cut))

    async def job(self, session: aiohttp.ClientSession, arrival: Arrival, number: int) -> None:
        """Try until it is answered, or the SDK gives up, or the run ends."""
        body = _body_of(arrival, number, self._clients.openings.get(arrival.tenant, ""))
        random = Random(f"{self._clients.seed}:{number}")
        tries: list[Record] = []
        at_s = arrival.at_s
        while self._start_s + at_s < self._end_s:
            await self.wait_until(at_s)
            answer = await try_once(session, self._call(arrival, body, len(tries)), planned_s=self._start_s + at_s)
            tries.append(replace(answer.record, at_s=at_s))
            delay_s = self._delay_s(answer.retryable, answer.record, answer.headers, len(tries), random)
            if delay_s is None:
                return self.add(arrival, tries, cut=answer.record.end is End.CUT)
            at_s = self._loop.time() - self._start_s + delay_s
        return self.add(arrival, tries, cut=True)  # it would have tried once more

    def _call(self, arrival: Arrival, body: bytes, tries_failed: int) -> Call:
        read_timeout_s = self._clients.patience.first_token_s
        headers = {
            TENANT_HEADER: arrival.tenant,
            "content-type": "application/json",
            "x-stainless-retry-count": str(tries_failed),
            "x-stainless-read-timeout": f"{read_timeout_s:g}",
        }
        return Call(
            url=self._clients.url,
            tenant=arrival.tenant,
            body=body,
            headers=headers,
            patience=self._clients.patience,
            run_end_s=self._end_s,
        )

    def _delay_s(
        self, retryable: bool, record: Record, headers: Mapping[str, str], tries_failed: int, random: Random
    ) -> float | None:
        if not retryable:
            return None
        return retry_delay_s(
            record.status,
            headers,
            tries_failed=tries_failed,
            now_s=time.time(),
            random=random,
            time_scale=self._clients.time_scale,
        )


def _body_of(arrival: Arrival, number: int, opening: str) -> bytes:
    """No two bodies are alike; `metadata` tells the simulated engine the true length, which no gateway may look at."""
    chars = max(arrival.prompt_tokens * BYTES_PER_TOKEN, 1)
    text = f"{number}: {opening}" + _WORDS * (chars // len(_WORDS) + 1)
    body = {
        "model": "sim",
        "messages": [{"role": "user", "content": text[:chars]}],
        "max_tokens": arrival.completion_tokens_max,
        "stream": True,
        "stream_options": {"include_usage": True},
        "metadata": {"sim_completion_tokens": str(arrival.completion_tokens)},
    }
    return json.dumps(body, separators=(",", ":")).encode()
