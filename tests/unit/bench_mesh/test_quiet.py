"""The quiet tenant's ratio and its range."""

import pytest
from bench.mesh.quiet import quiet_of
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.bench_mesh.jobs import OBJECTIVE, good, job, refused

seconds = st.lists(st.floats(min_value=0.01, max_value=10.0), min_size=1, max_size=60)


def test_the_ratio_is_that_of_the_nearest_ranks() -> None:
    """p99 of a hundred is the 99th smallest, on both sides."""
    solo = [job(good(ttft_s=rank / 100)) for rank in range(1, 101)]
    beside = [job(good(ttft_s=2 * rank / 100, held_s=rank / 1000)) for rank in range(1, 101)]
    found = quiet_of(solo, beside, OBJECTIVE, seed=1)
    assert (found.solo_p99_s, found.beside_p99_s, found.ratio) == (0.99, 1.98, 2.0)
    assert (found.n_solo, found.n_beside, found.held_p99_s) == (100, 100, 0.099)
    assert found.in_time == 0.5


def test_without_a_first_token_there_is_no_ratio() -> None:
    """Refused requests have no TTFT: they lower the share in time and are in no percentile."""
    found = quiet_of([job()], [job(refused())], OBJECTIVE, seed=1)
    assert (found.ratio, found.ratio_low, found.ratio_high, found.beside_p99_s) == (None, None, None, None)
    assert (found.n_beside, found.in_time) == (0, 0.0)
    with pytest.raises(ValueError, match="sent nothing"):
        quiet_of([job()], [], OBJECTIVE, seed=1)


@given(solo_s=seconds, beside_s=seconds)
def test_the_range_lies_within_what_was_seen(solo_s: list[float], beside_s: list[float]) -> None:
    """No resample is beyond the extremes, the range is in order, and a seed gives the same again."""
    solo, beside = ([job(good(ttft_s=each)) for each in side] for side in (solo_s, beside_s))
    found = quiet_of(solo, beside, OBJECTIVE, seed=3)
    assert found.ratio_low is not None
    assert found.ratio_high is not None
    assert min(beside_s) / max(solo_s) <= found.ratio_low <= found.ratio_high <= max(beside_s) / min(solo_s)
    assert quiet_of(solo, beside, OBJECTIVE, seed=3) == found
