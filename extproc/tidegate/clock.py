"""The clock is a parameter: everything that waits is told which one, so that tests drive time instead of sleeping.

`now_s` counts seconds from an arbitrary start and never goes back; it is good for differences only. Timers are
one-shot.
"""

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A scheduled call that has not happened yet."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Tells the time and calls back later."""

    def now_s(self) -> float:
        """Seconds since an arbitrary start, monotonic."""
        ...

    def wall_s(self) -> float:
        """Seconds since the Unix epoch, for logs and files only; it may jump."""
        ...

    def call_at(self, when_s: float, callback: Callable[[], None]) -> Timer:
        """Call back once when `now_s()` reaches `when_s`, at once if it already has."""
        ...


class SystemClock:
    """The machine's monotonic clock; timers run on the running event loop."""

    def now_s(self) -> float:
        return time.monotonic()

    def wall_s(self) -> float:
        return time.time()

    def call_at(self, when_s: float, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(max(0.0, when_s - time.monotonic()), callback)


class _ManualTimer:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    """Stands still until it is told to `advance`; timers run inside that call, in order of their time."""

    def __init__(self, start_s: float = 1000.0) -> None:
        self._now_s = start_s
        self._order = itertools.count()
        self._timers: list[tuple[float, int, _ManualTimer]] = []

    def now_s(self) -> float:
        return self._now_s

    def wall_s(self) -> float:
        return 1_700_000_000.0 + self._now_s

    def call_at(self, when_s: float, callback: Callable[[], None]) -> Timer:
        timer = _ManualTimer(callback)
        heapq.heappush(self._timers, (when_s, next(self._order), timer))
        return timer

    def advance(self, seconds: float) -> None:
        """Move time on, running every timer that falls due on the way at its own moment."""
        end_s = self._now_s + seconds
        while self._timers and self._timers[0][0] <= end_s:
            when_s, _, timer = heapq.heappop(self._timers)
            self._now_s = max(self._now_s, when_s)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()
        self._now_s = end_s
