"""Waiting on the clock that was handed in: a pause, and a deadline around whatever else waits."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tidegate.clock import Clock


async def sleep_until(clock: Clock, when_s: float) -> None:
    """Return once `clock.now_s()` has reached `when_s`; yields to the event loop at least once."""
    woken = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    timer = clock.call_at(when_s, wake)
    try:
        await woken
    finally:
        timer.cancel()


@asynccontextmanager
async def deadline(clock: Clock, wait_s: float) -> AsyncIterator[None]:
    """The block ends within `wait_s` seconds of the clock.

    Raises:
        TimeoutError: it did not, and was cancelled. A cancellation from outside stays one.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as scope:
        timer = clock.call_at(clock.now_s() + wait_s, lambda: scope.reschedule(loop.time()))
        try:
            yield
        finally:
            timer.cancel()
