"""One request of a client: a streamed chat completion, read to its end or left."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import aiohttp

from tidegate.sim.record import End, Record
from tidegate.sim.sse_tally import SseTally

HELD_HEADER = "x-tidegate-queue-ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a client waits before it leaves, seconds from sending."""

    first_token_s: float = 10.0
    whole_s: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is sent, and how long its client waits; `run_end_s` on the event loop's clock cuts what is open then."""

    url: str
    tenant: str
    body: bytes
    headers: Mapping[str, str]
    patience: Patience
    run_end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How it ended; `retryable`: before an answer began, or with a status other than 200. The record's at_s is 0.

    `headers` know their names in any case; there are none where there was no answer.
    """

    record: Record
    headers: Mapping[str, str]
    retryable: bool


async def try_once(session: aiohttp.ClientSession, call: Call, *, planned_s: float) -> Answer:
    """Send and read to the end; every way to end is in the answer, none is raised."""
    exchange = _Exchange(call)
    await exchange.perform(session)
    return exchange.answer(planned_s)


class _Exchange:
    """One request from sending to its end."""

    __slots__ = ("_call", "_end", "_end_s", "_first_s", "_headers", "_last_s", "_loop", "_sent_s", "_status", "_tally")

    def __init__(self, call: Call) -> None:
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._tally = SseTally()
        self._end = End.BROKEN
        self._status = 0
        self._headers: Mapping[str, str] = {}
        self._sent_s = self._end_s = self._last_s = self._loop.time()
        self._first_s: float | None = None

    async def perform(self, session: aiohttp.ClientSession) -> None:
        call, patience = self._call, self._call.patience
        try:
            async with asyncio.timeout_at(min(self._sent_s + patience.first_token_s, call.run_end_s)) as deadline:
                async with session.post(call.url, data=call.body, headers=call.headers) as response:
                    self._status, self._headers = response.status, response.headers
                    whole_s = min(self._sent_s + patience.whole_s, call.run_end_s)
                    try:
                        await self._read(response, lambda: deadline.reschedule(whole_s))
                    finally:
                        if self._end is not End.COMPLETE:
                            response.close()
        except TimeoutError:
            self._end = self._reason_to_leave(deadline.when() == call.run_end_s)
        except (aiohttp.ClientError, ConnectionError):
            self._end = End.BROKEN
        self._end_s = self._loop.time()

    def answer(self, planned_s: float) -> Answer:
        tokens = self._tally.tokens if self._tally.usage_tokens is None else self._tally.usage_tokens
        tpot_s = None if self._first_s is None or tokens < 2 else (self._last_s - self._first_s) / (tokens - 1)
        record = Record(
            tenant=self._call.tenant,
            at_s=0.0,
            late_s=max(0.0, self._sent_s - planned_s),
            end=self._end,
            status=self._status,
            ttft_s=None if self._first_s is None else self._first_s - self._sent_s,
            tpot_s=tpot_s,
            e2e_s=self._end_s - self._sent_s,
            tokens=tokens,
            held_s=number(self._headers.get(HELD_HEADER), scale=1e-3),
        )
        retryable = self._status != 200 and self._end is not End.CUT
        return Answer(record=record, headers=self._headers, retryable=retryable)

    async def _read(self, response: aiohttp.ClientResponse, on_first_token: Callable[[], None]) -> None:
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

    def _reason_to_leave(self, run_ended: bool) -> End:
        if run_ended:
            return End.CUT
        return End.GAVE_UP_FIRST if self._first_s is None else End.GAVE_UP_WHOLE


def number(text: str | None, *, scale: float) -> float | None:
    """A header's number in other units; None where it is missing or none."""
    try:
        return None if text is None else float(text) * scale
    except ValueError:
        return None
