"""The p99 window: exactly -10 % or +5 % every five seconds."""

from math import ceil, inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.admission.p99_window import P99Window


def rolled(window: P99Window, latencies_s: list[float], *, in_flight: int | None = None, since_s: float = 0.0) -> float:
    """The limit after one window of these samples."""
    window.roll(since_s)
    for latency_s in latencies_s:
        window.sample(latency_s, in_flight)
    window.roll(since_s + 5.0)
    return window.limit


def test_one_in_a_hundred_may_be_late() -> None:
    """With 1 of 100 samples over the target p99 is not over it, with 2 it is."""
    assert rolled(P99Window(1.0, 40.0), [0.5] * 99 + [9.0]) == pytest.approx(42.0)
    assert rolled(P99Window(1.0, 40.0), [0.5] * 98 + [9.0] * 2) == pytest.approx(36.0)
    assert rolled(P99Window(1.0, 40.0), [1.0]) == pytest.approx(42.0)
    assert rolled(P99Window(1.0, 40.0), [1.001]) == pytest.approx(36.0)


@given(st.lists(st.floats(0.0, 2.0), min_size=1, max_size=350))
def test_two_counters_tell_the_percentile_exactly(latencies_s: list[float]) -> None:
    """The limit falls if and only if the ceil(0.99 n)-th smallest sample is over the target."""
    p99_s = sorted(latencies_s)[ceil(round(0.99 * len(latencies_s), 6)) - 1]
    assert (rolled(P99Window(1.0, 40.0), latencies_s) < 40.0) == (p99_s > 1.0)


def test_nothing_moves_within_a_window() -> None:
    """The limit changes after five seconds, not before, and once where the window closes late."""
    window = P99Window(1.0, 40.0)
    window.roll(100.0)
    window.sample(9.0)
    window.roll(104.9)
    assert window.limit == 40.0
    window.roll(130.0)
    assert window.limit == pytest.approx(36.0)
    window.sample(9.0)
    window.roll(134.0)
    assert window.limit == pytest.approx(36.0)


def test_a_window_without_samples_measures_nothing() -> None:
    """Silence, or samples that are no seconds, leave the limit where it is."""
    assert rolled(P99Window(1.0, 40.0), []) == 40.0
    assert rolled(P99Window(1.0, 40.0), [nan, inf, -1.0]) == 40.0


def test_a_limit_that_was_not_reached_is_not_raised() -> None:
    """It grows only where as many as it lets in were in flight; it falls all the same."""
    assert rolled(P99Window(1.0, 40.5), [0.5] * 9, in_flight=39) == 40.5
    assert rolled(P99Window(1.0, 40.5), [0.5] * 9, in_flight=40) == pytest.approx(42.525)
    assert rolled(P99Window(1.0, 40.5), [9.0] * 9, in_flight=3) == pytest.approx(36.45)


def test_each_window_has_a_peak_of_its_own() -> None:
    """What was in flight in the window before does not count."""
    window = P99Window(1.0, 40.0)
    assert rolled(window, [0.5], in_flight=50) == pytest.approx(42.0)
    assert rolled(window, [0.5], in_flight=5, since_s=5.0) == pytest.approx(42.0)


def test_floor_and_ceiling() -> None:
    """However long it goes on, the limit stays within its bounds, the start too."""
    low, high = P99Window(1.0, 8.0, floor=4.0), P99Window(1.0, 8.0, ceiling=10.0)
    for window in range(50):
        rolled(low, [9.0], since_s=5.0 * window)
        rolled(high, [0.1], since_s=5.0 * window)
    assert (low.limit, high.limit) == (4.0, 10.0)
    assert P99Window(1.0, 99.0, ceiling=10.0).limit == 10.0


@pytest.mark.parametrize("facts", [(0.0, 5.0), (nan, 5.0), (1.0, 5.0, 0.0), (1.0, 5.0, 9.0, 8.0)])
def test_bounds_that_contradict_each_other(facts: tuple[float, ...]) -> None:
    """A target, floor or ceiling that makes no sense is refused."""
    with pytest.raises(ValueError, match="in order"):
        P99Window(*facts)
