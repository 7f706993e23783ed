"""Waiting on the clock that was handed in."""

import asyncio
from collections.abc import Callable

import pytest

from tests.unit.signals_polling.harness import let_run, soon
from tidegate.clock import ManualClock, Timer
from tidegate.signals.timing import deadline, sleep_until


class CountingClock(ManualClock):
    """Knows how many of its timers are still to ring."""

    def __init__(self) -> None:
        super().__init__()
        self.armed = 0

    def call_at(self, when_s: float, callback: Callable[[], None]) -> Timer:
        clock = self
        clock.armed += 1

        class Counted:
            def __init__(self) -> None:
                self._timer = ManualClock.call_at(clock, when_s, self._ring)
                self._waits = True

            def cancel(self) -> None:
                self._timer.cancel()
                self._end()

            def _ring(self) -> None:
                self._end()
                callback()

            def _end(self) -> None:
                clock.armed -= self._waits
                self._waits = False

        return Counted()


async def test_a_pause_ends_at_its_time() -> None:
    """A pause lasts until the clock says so, and no shorter."""
    clock = CountingClock()
    task = asyncio.create_task(sleep_until(clock, clock.now_s() + 5.0))
    await let_run()
    clock.advance(4.9)
    await let_run()
    assert not task.done()
    clock.advance(0.1)
    await soon(task)
    assert clock.armed == 0


async def test_a_pause_that_is_given_up_leaves_no_timer() -> None:
    """A cancelled pause takes its timer with it, also where the timer has just rung."""
    clock = CountingClock()
    for passes_s in (0.0, 5.0):
        task = asyncio.create_task(sleep_until(clock, clock.now_s() + 5.0))
        await let_run()
        task.cancel()
        clock.advance(passes_s)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert clock.armed == 0


async def test_a_deadline() -> None:
    """A block that is in time leaves no timer; one that is not ends with a TimeoutError at the deadline."""
    clock = CountingClock()
    async with deadline(clock, 1.0):
        await asyncio.sleep(0)
    assert clock.armed == 0

    async def wait() -> None:
        async with deadline(clock, 1.0):
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await let_run()
    clock.advance(1.0)
    with pytest.raises(TimeoutError):
        await soon(task)


async def test_a_cancellation_wins_over_the_deadline() -> None:
    """Cancelled from outside in the moment of the deadline, a block is cancelled."""
    clock = CountingClock()

    async def wait() -> None:
        async with deadline(clock, 1.0):
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await let_run()
    clock.advance(1.0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(task)
    assert clock.armed == 0
