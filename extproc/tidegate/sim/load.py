"""The load driver: sends arrivals at their moments as streamed chat completions and records what each client saw.

It is open loop: it never waits for an answer before it sends the next request. Clients behave as people do: they
leave when the first token or the whole answer takes too long. Requests in flight are bounded; what is over the bound is
recorded as such, never dropped silently.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import aiohttp

from tidegate.sim.arrivals import Arrival
from tidegate.sim.exchange import Call, Patience, number, try_once
from tidegate.sim.record import End, Record

BYTES_PER_TOKEN = 4
TENANT_HEADER = "x-tenant"
_WORDS = "the tide came in over the flat sand and the boats by the old pier began to lift one after one "


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where the load goes and how its clients behave.

    Attributes:
        url: of the chat completions endpoint.
        openings: how a tenant's prompts begin, by tenant; a plain sentence where none is given.
        in_flight_max: requests in flight above which an arrival is not sent but recorded as overflow.
        drain_s_max: how long after the last arrival the run may last; requests still open then are cut.
    """

    url: str
    model: str = "sim"
    patience: Patience = field(default_factory=Patience)
    openings: Mapping[str, str] = field(default_factory=dict)
    in_flight_max: int = 2000
    drain_s_max: float = 30.0


async def drive(
    arrivals: Sequence[Arrival], target: Target, *, on_record: Callable[[Record], None] | None = None
) -> tuple[Record, ...]:
    """Send all arrivals and wait until each has ended; the records come in the order of their ends.

    Args:
        on_record: called with each record as it is made, for a progress display.
    """
    run = _Run(target, last_arrival_s=arrivals[-1].at_s if arrivals else 0.0, on_record=on_record)
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with (
        aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as session,
        asyncio.TaskGroup() as tasks,
    ):
        for arrival in arrivals:
            await run.wait_until(arrival.at_s)
            if run.in_flight >= target.in_flight_max:
                run.add(Record(tenant=arrival.tenant, at_s=arrival.at_s, end=End.OVERFLOW))
            else:
                run.in_flight += 1
                tasks.create_task(run.send(session, arrival))
    return tuple(run.records)


class _Run:
    """One run under way: its start on the event loop's clock, and the records so far."""

    def __init__(self, target: Target, *, last_arrival_s: float, on_record: Callable[[Record], None] | None) -> None:
        self.in_flight = 0
        self.records: list[Record] = []
        self._target = target
        self._on_record = on_record
        self._loop = asyncio.get_running_loop()
        self._start_s = self._loop.time()
        self._end_s = self._start_s + last_arrival_s + target.drain_s_max

    async def wait_until(self, at_s: float) -> None:
        if (left_s := self._start_s + at_s - self._loop.time()) > 0.0:
            await asyncio.sleep(left_s)

    def add(self, record: Record) -> None:
        self.records.append(record)
        if self._on_record is not None:
            self._on_record(record)

    async def send(self, session: aiohttp.ClientSession, arrival: Arrival) -> None:
        target = self._target
        call = Call(
            url=target.url,
            tenant=arrival.tenant,
            body=_body_of(arrival, target),
            headers={TENANT_HEADER: arrival.tenant, "content-type": "application/json"},
            patience=target.patience,
            run_end_s=self._end_s,
        )
        try:
            answer = await try_once(session, call, planned_s=self._start_s + arrival.at_s)
        finally:
            self.in_flight -= 1
        retry_after_s = number(answer.headers.get("retry-after"), scale=1.0)
        self.add(replace(answer.record, at_s=arrival.at_s, retry_after_s=retry_after_s))


def _body_of(arrival: Arrival, target: Target) -> bytes:
    """The request body; `metadata` tells the simulated engine the true length, which no gateway may look at."""
    body = {
        "model": target.model,
        "messages": [{"role": "user", "content": _prompt(arrival, target.openings.get(arrival.tenant, ""))}],
        "max_tokens": arrival.completion_tokens_max,
        "stream": True,
        "stream_options": {"include_usage": True},
        "metadata": {"sim_completion_tokens": str(arrival.completion_tokens)},
    }
    return json.dumps(body, separators=(",", ":")).encode()


def _prompt(arrival: Arrival, opening: str) -> str:
    """Text of about `prompt_tokens` tokens that begins as its tenant's prompts do."""
    chars = max(arrival.prompt_tokens * BYTES_PER_TOKEN, 1)
    return (opening + _WORDS * (chars // len(_WORDS) + 1))[:chars]
