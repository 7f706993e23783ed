"""The sliding window: percentiles are exact, and it never holds more than it may."""

import math

from hypothesis import given
from hypothesis import strategies as st

from tidegate.agent.window import Window

GAPS_S = st.sampled_from((0.0, 0.1, 0.5, 3.0, 9.9, 10.0, 25.0))
SAMPLES = st.lists(st.tuples(GAPS_S, st.integers(0, 100)), min_size=1, max_size=200)


def nearest_rank(values: list[int], percentage: int) -> float:
    """The same from the definition: the least value that enough samples are not above."""
    needed = percentage * len(values)
    return min(x for x in values if 100 * sum(each <= x for each in values) >= needed) / 100


@given(samples=SAMPLES, samples_max=st.integers(1, 50))
def test_percentiles_of_what_is_in_the_window(samples: list[tuple[float, int]], samples_max: int) -> None:
    """They are those of the samples of the last ten seconds, of the newest where there are too many."""
    window, now_s = Window(10.0, samples_max), 1000.0
    taken: list[tuple[float, int]] = []
    for gap_s, percent in samples:
        now_s += gap_s
        window.add(percent, now_s)
        taken.append((now_s, percent))
        inside = [each for at_s, each in taken if at_s > now_s - 10.0][-samples_max:]
        found = window.utilisation()
        assert found is not None
        assert found.samples == len(inside) <= samples_max
        assert found.last == percent / 100
        assert found.p50 == nearest_rank(inside, 50)
        assert found.p95 == nearest_rank(inside, 95)


@given(values=st.lists(st.integers(0, 100), min_size=1, max_size=300))
def test_percentiles_are_ordered_and_are_samples(values: list[int]) -> None:
    """The median is not above the 95th percentile, and both have been seen."""
    window = Window(60.0, 1000)
    for at, percent in enumerate(values):
        window.add(percent, at / 10)
    found = window.utilisation()
    assert found is not None
    assert found.p50 <= found.p95
    assert {found.p50, found.p95} <= {percent / 100 for percent in values}
    assert math.isclose(found.last, values[-1] / 100)


def test_nothing_before_the_first_sample() -> None:
    """An empty window has no percentile, not even zero."""
    assert Window(10.0, 100).utilisation() is None
