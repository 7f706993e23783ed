"""The load driver: sends arrivals at their moments as streamed chat completions and records what each client saw.

It is open loop: it never waits for an answer before it sends the next request. Clients behave as people do: they
leave when the first token or the whole answer takes too long. Requests in flight are bounded; what is over the bound is
recorded as such, never dropped silently.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import aiohttp

from tidegate.sim.arrivals import Arrival
from tidegate.sim.record import End, Record
from tidegate.sim.sse_tally import SseTally

BYTES_PER_TOKEN = 4
TENANT_HEADER = "x-tenant"
HELD_HEADER = "x-tidegate-queue-ms"
_WORDS = "the tide came in over the flat sand and the boats by the old pier began to lift one after one "


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a client waits before it leaves, seconds from sending."""

    first_token_s: float = 10.0
    whole_s: float = 120.0


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
        exchange = _Exchange(self._loop, self._target, arrival)
        try:
            await exchange.perform(session, run_end_s=self._end_s)
        finally:
            self.in_flight -= 1
        self.add(exchange.record(planned_s=self._start_s + arrival.at_s))


class _Exchange:
    """One request from sending to its end."""

    __slots__ = (
        "_arrival", "_end", "_end_s", "_first_s", "_held_s", "_last_s", "_loop",
        "_patience", "_retry_after_s", "_sent_s", "_status", "_tally", "_target",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop, target: Target, arrival: Arrival) -> None:
        self._loop = loop
        self._target = target
        self._arrival = arrival
        self._patience = target.patience
        self._tally = SseTally()
        self._end = End.BROKEN
        self._status = 0
        self._sent_s = self._end_s = loop.time()
        self._first_s: float | None = None
        self._last_s = self._sent_s
        self._held_s: float | None = None
        self._retry_after_s: float | None = None

    async def perform(self, session: aiohttp.ClientSession, *, run_end_s: float) -> None:
        """Send and read to the end; every way to end is kept in `_end`, none is raised."""
        body, headers = _body_of(self._arrival, self._target), {TENANT_HEADER: self._arrival.tenant}
        self._sent_s = self._loop.time()
        try:
            async with asyncio.timeout_at(min(self._sent_s + self._patience.first_token_s, run_end_s)) as deadline:
                headers["content-type"] = "application/json"
                async with session.post(self._target.url, data=body, headers=headers) as response:
                    try:
                        self._read_headers(response)
                        whole_s = min(self._sent_s + self._patience.whole_s, run_end_s)
                        await self._read_body(response, lambda: deadline.reschedule(whole_s))
                    finally:
                        if self._end is not End.COMPLETE:
                            response.close()
        except TimeoutError:
            self._end = self._reason_to_leave(run_end_s)
        except (aiohttp.ClientError, ConnectionError):
            self._end = End.BROKEN
        self._end_s = self._loop.time()

    def record(self, *, planned_s: float) -> Record:
        tokens = self._tally.tokens if self._tally.usage_tokens is None else self._tally.usage_tokens
        tpot_s = None
        if self._first_s is not None and tokens > 1:
            tpot_s = (self._last_s - self._first_s) / (tokens - 1)
        return Record(
            tenant=self._arrival.tenant,
            at_s=self._arrival.at_s,
            late_s=max(0.0, self._sent_s - planned_s),
            end=self._end,
            status=self._status,
            ttft_s=None if self._first_s is None else self._first_s - self._sent_s,
            tpot_s=tpot_s,
            e2e_s=self._end_s - self._sent_s,
            tokens=tokens,
            held_s=self._held_s,
            retry_after_s=self._retry_after_s,
        )

    def _read_headers(self, response: aiohttp.ClientResponse) -> None:
        self._status = response.status
        self._held_s = _number(response.headers.get(HELD_HEADER), scale=1e-3)
        self._retry_after_s = _number(response.headers.get("retry-after"), scale=1.0)

    async def _read_body(self, response: aiohttp.ClientResponse, on_first_token: Callable[[], None]) -> None:
        if self._status != 200:
            await response.read()
            self._end = End.REFUSED
            return
        async for chunk in response.content.iter_any():
            if self._tally.feed(chunk):
                self._last_s = self._loop.time()
                if self._first_s is None:
                    self._first_s = self._last_s
                    on_first_token()
        self._end = End.COMPLETE if self._tally.done and not self._tally.failed else End.BROKEN

    def _reason_to_leave(self, run_end_s: float) -> End:
        if self._loop.time() >= run_end_s:
            return End.CUT
        return End.GAVE_UP_FIRST if self._first_s is None else End.GAVE_UP_WHOLE


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


def _number(text: str | None, *, scale: float) -> float | None:
    """A header's number in other units; None where it is missing or none."""
    try:
        return None if text is None else float(text) * scale
    except ValueError:
        return None
