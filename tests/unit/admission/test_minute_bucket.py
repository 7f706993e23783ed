"""So much a minute: what passes at once, what over time, what is owed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.admission.minute_bucket import MinuteBucket


def test_a_minutes_worth_at_once_then_the_rate() -> None:
    """A full bucket lets a whole minute's worth go, and after that one sixtieth a second."""
    bucket = MinuteBucket(120, 0.0)
    bucket.spend(120, 0.0)
    assert bucket.level(0.0) == 0.0
    assert bucket.wait_s(1, 0.0) == pytest.approx(0.5)
    assert bucket.wait_s(1, 0.5) == 0.0


def test_more_than_a_minutes_worth_goes_when_the_bucket_is_full() -> None:
    """Something larger than the whole rate is not shut out for ever: it waits for a full bucket and leaves a debt."""
    bucket = MinuteBucket(60, 0.0)
    bucket.spend(30, 0.0)
    assert bucket.wait_s(1000, 0.0) == pytest.approx(30.0)
    assert bucket.wait_s(1000, 30.0) == 0.0
    bucket.spend(1000, 30.0)
    assert bucket.level(30.0) == -60.0


def test_giving_back_never_makes_it_fuller_than_full() -> None:
    """What is given back beyond a minute's worth is gone."""
    bucket = MinuteBucket(60, 0.0)
    bucket.spend(-10, 0.0)
    assert bucket.level(0.0) == 60.0


def test_another_rate_keeps_what_was_spent() -> None:
    """A smaller rate cuts what is left to its own minute's worth; a larger one does not fill the bucket."""
    bucket = MinuteBucket(60, 0.0)
    bucket.restate(10, 0.0)
    assert bucket.level(0.0) == 10.0
    bucket.restate(600, 0.0)
    assert bucket.level(0.0) == 10.0
    assert bucket.level(1.0) == 20.0


@given(
    per_minute=st.integers(1, 10_000),
    wants=st.lists(st.tuples(st.floats(0.0, 30.0), st.floats(0.0, 20_000.0)), max_size=60),
)
def test_over_time_never_more_than_the_rate(per_minute: int, wants: list[tuple[float, float]]) -> None:
    """Whatever is asked for and when, what passes is at most the rate times the time, a minute's worth and one debt."""
    bucket = MinuteBucket(per_minute, 0.0)
    now_s = passed = 0.0
    for step_s, amount in wants:
        now_s += step_s
        if bucket.wait_s(amount, now_s) == 0.0:
            spent = min(amount, 2.0 * per_minute)
            bucket.spend(spent, now_s)
            passed += spent
        assert -per_minute <= bucket.level(now_s) <= per_minute
        assert passed <= per_minute * (2.0 + now_s / 60.0) * (1 + 1e-9)


@given(per_minute=st.integers(1, 10_000), spent=st.floats(0.0, 20_000.0), amount=st.floats(0.1, 20_000.0))
def test_the_wait_named_suffices(per_minute: int, spent: float, amount: float) -> None:
    """Whoever comes back when told to is let in."""
    bucket = MinuteBucket(per_minute, 0.0)
    bucket.spend(spent, 0.0)
    wait_s = bucket.wait_s(amount, 0.0)
    assert bucket.wait_s(amount, wait_s * (1 + 1e-9) + 1e-6) < 1e-3
