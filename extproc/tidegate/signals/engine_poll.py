"""One poll of one engine: its page, read, and now and then whether it is ready."""

import asyncio

import msgspec

from tidegate.admission.reading import EngineReading
from tidegate.clock import Clock
from tidegate.errors import HalfPage
from tidegate.signals.base import PageReader
from tidegate.signals.budget import PollBudget
from tidegate.signals.causes import Cause, PollFailed
from tidegate.signals.fetch import Fetcher
from tidegate.signals.readiness import is_ready
from tidegate.signals.targets import Target

READY_POLLS = 5
"""A ready engine is asked whether it still is with every fifth poll; one that is not, with each."""
LARGE_PAGE_BYTES = 256 * 1024
_SPOKE = frozenset({Cause.STATUS, Cause.HALF_PAGE})


class EnginePoll:
    """Polls one engine, and remembers what it said of its readiness.

    Args:
        target: what is polled.
        fetcher: of the process.
        budget: of the process; told how long reading took.
        clock: for that.
    """

    def __init__(self, target: Target, fetcher: Fetcher, budget: PollBudget, clock: Clock) -> None:
        self._target = target
        self._fetcher = fetcher
        self._budget = budget
        self._clock = clock
        self._ready = True
        self._polls = 0

    async def look(self, reader: PageReader) -> EngineReading:
        """What the engine says now; `ready` is False where its page or its readiness page says so.

        An engine that has no page to show but says that it is not ready gives a reading that says only that.

        Raises:
            PollFailed: it gave no reading, and did not say that it is not ready.
        """
        due = not self._ready or self._polls % READY_POLLS == 0
        self._polls += 1
        failure: PollFailed | None = None
        reading = EngineReading()
        try:
            reading = await self._read(reader)
        except PollFailed as failed:
            if failed.cause not in _SPOKE:
                raise
            failure = failed
        answer = await is_ready(self._target, reader.kind, self._fetcher) if failure or due else None
        self._ready = self._ready if answer is None else answer
        if failure is not None and answer is not False:
            raise failure
        return reading if self._ready else msgspec.structs.replace(reading, ready=False)

    async def _read(self, reader: PageReader) -> EngineReading:
        page = await self._fetcher.fetch(self._target.url, name=self._target.name)
        try:
            if len(page) > LARGE_PAGE_BYTES:  # verdicts do not wait for it
                return (await asyncio.to_thread(reader.read, page)).checked()
            started_s = self._clock.now_s()
            reading = reader.read(page).checked()
            self._budget.spend(self._clock.now_s() - started_s)
            return reading
        except HalfPage as error:
            raise PollFailed(Cause.HALF_PAGE, str(error)) from error
