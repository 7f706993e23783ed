"""How many may wait: a multiple of what is admitted in a second, within bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.admission.queue_len import QueueLen


def after(rate_per_s: float, seconds: float) -> tuple[QueueLen, float]:
    """A bound that saw so many admissions a second for so long, and the time."""
    queue_len, now_s = QueueLen(0.0), 0.0
    for number in range(int(rate_per_s * seconds)):
        now_s = (number + 1) / rate_per_s
        queue_len.admitted(now_s)
    return queue_len, now_s


def test_fifty_an_engine_to_begin_with() -> None:
    """Before anything was admitted, whatever the time and the number of engines."""
    assert [QueueLen(5.0).per_engine(engines, 5.0) for engines in (0, 1, 8)] == [50, 50, 50]


@pytest.mark.parametrize(("rate_per_s", "expected"), [(5.0, 50), (40.0, 200), (100.0, 500)])
def test_five_seconds_of_what_is_admitted(rate_per_s: float, expected: int) -> None:
    """After a minute of a steady rate, five times that rate; never fewer than fifty."""
    queue_len, now_s = after(rate_per_s, 60.0)
    assert queue_len.per_engine(1, now_s) == pytest.approx(expected, rel=0.02)


def test_engines_share_the_rate() -> None:
    """A hundred a second of four engines are 25 each."""
    queue_len, now_s = after(100.0, 60.0)
    assert queue_len.per_engine(4, now_s) == pytest.approx(125, rel=0.02)


def test_a_thousand_at_most() -> None:
    """However fast an engine is."""
    queue_len, now_s = after(1000.0, 20.0)
    assert queue_len.per_engine(1, now_s) == 1000


def test_it_is_forgotten_within_a_minute() -> None:
    """Ten seconds without an admission leave e to the -1; after a minute fifty again."""
    queue_len, now_s = after(100.0, 60.0)
    assert queue_len.per_engine(1, now_s + 10.0) == pytest.approx(184, abs=2)
    assert queue_len.per_engine(1, now_s + 60.0) == 50


@given(st.lists(st.floats(0.0, 1000.0), max_size=200), st.integers(-1, 300), st.floats(0.0, 1e6))
def test_the_bounds_hold(steps_s: list[float], engines: int, later_s: float) -> None:
    """From 50 to 1,000, whatever came when, and asking does not change it."""
    queue_len, now_s = QueueLen(0.0), 0.0
    for step_s in steps_s:
        now_s += step_s
        queue_len.admitted(now_s)
    bound = queue_len.per_engine(engines, now_s + later_s)
    assert 50 <= bound <= 1000
    assert queue_len.per_engine(engines, now_s + later_s) == bound
