"""What all polls of the process together may take: requests under way, and a share of the event loop.

    start of a poll >= start of the one before + cost of a poll / share

The share is a fifth of a core, the cost half a millisecond, plus what reading a page really took: at most 400 polls a
second, fewer where pages are large. However many pools and engines a policy names, and however long their pages are,
verdicts come first; the polls then merely come later, each in its turn.

Requests under way have two lanes, one for engines whose last poll failed. A hung engine holds its place for the whole
deadline, so that with one lane a dead rack would keep the pages of all others waiting.
"""

from asyncio import Semaphore
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tidegate.clock import Clock
from tidegate.signals.timing import sleep_until

IN_FLIGHT_MAX = 64
"""Of each lane."""
LOOP_SHARE_MAX = 0.2
POLL_COST_S = 0.0005


class PollBudget:
    """Turns to poll; one for the process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._healthy = Semaphore(IN_FLIGHT_MAX)
        self._failing = Semaphore(IN_FLIGHT_MAX)
        self._free_s = clock.now_s()

    @asynccontextmanager
    async def turn(self, *, failing: bool) -> AsyncIterator[None]:
        """Wait for a turn, and hold it for the length of the block."""
        start_s = max(self._clock.now_s(), self._free_s)
        self._free_s = start_s
        self.spend(POLL_COST_S)
        if start_s > self._clock.now_s():
            await sleep_until(self._clock, start_s)
        async with self._failing if failing else self._healthy:
            yield

    def spend(self, cost_s: float) -> None:
        """A poll held the event loop for `cost_s` seconds: the next ones start so much later."""
        self._free_s = max(self._free_s, self._clock.now_s()) + cost_s / LOOP_SHARE_MAX
