"""Several engines as one."""

from typing import Any

import pytest

from tidegate.admission.pool_reading import PoolReading
from tidegate.admission.reading import EngineReading


def reading(**facts: Any) -> EngineReading:
    return EngineReading(**facts)


def whole(*readings: EngineReading, engines: int | None = None) -> EngineReading:
    """Of engines that have each been read once."""
    pool = PoolReading()
    fresh = {str(number): each for number, each in enumerate(readings)}
    for address, each in fresh.items():
        pool.take(address, each)
    return pool.whole(fresh, len(readings) if engines is None else engines)


def test_sequences_are_summed() -> None:
    """What runs and what waits in the pool is what does in each."""
    pool = whole(reading(running=3, waiting=1), reading(running=4, waiting=0))
    assert (pool.running, pool.waiting) == (7, 1)


@pytest.mark.parametrize(
    ("readings", "engines"),
    [((reading(running=3), reading()), 2), ((reading(running=3),), 2)],
)
def test_without_one_engine_there_is_no_sum(readings: tuple[EngineReading, ...], engines: int) -> None:
    """A count that lacks an engine would look like requests that are gone."""
    assert whole(*readings, engines=engines).running is None


def test_what_each_can_hold_is_a_mean() -> None:
    """A book of several engines multiplies by their number itself; who says nothing is left out."""
    pool = whole(
        reading(kv_usage=0.2, slots=10, kv_tokens_max=1000),
        reading(kv_usage=0.6, slots=20, kv_tokens_max=3000),
        reading(),
    )
    assert (pool.kv_usage, pool.slots, pool.kv_tokens_max) == (pytest.approx(0.4), 15, 2000)


def test_the_fullest_gpu_counts() -> None:
    """Free memory is that of the engine which has the least; None where nobody tells."""
    assert whole(reading(memory_free_mib=900.0), reading(memory_free_mib=70.0), reading()).memory_free_mib == 70.0
    assert whole(reading()).memory_free_mib is None


def test_counters_are_what_was_counted_since_the_first_reading() -> None:
    """An engine that joins brings its past, one that starts anew loses it, one that leaves takes it: none of it is
    work that was done now.
    """
    pool = PoolReading()
    now: dict[str, EngineReading] = {}

    def counts(address: str, total: float) -> float | None:
        now[address] = reading(steps_total=total)
        pool.take(address, now[address])
        return pool.whole(now, len(now)).steps_total

    assert counts("a", 1000.0) == 0.0
    assert counts("a", 1010.0) == 10.0
    assert counts("b", 5000.0) == 10.0
    assert counts("b", 5005.0) == 15.0
    assert counts("a", 3.0) == 15.0  # it began anew
    assert counts("a", 7.0) == 19.0
    del now["b"]
    pool.keep(["a"])
    assert counts("a", 8.0) == 20.0
    assert counts("b", 9000.0) == 20.0  # it is back


def test_steps_without_one_engine_are_none() -> None:
    """The others' steps are those of a smaller pool; events are worth telling all the same."""
    pool = PoolReading()
    for total in (5.0, 7.0):
        last = reading(steps_total=total, preemptions_total=total)
        pool.take("a", last)
    part = pool.whole({"a": last}, 2)
    assert (part.steps_total, part.preemptions_total) == (None, 2.0)
