"""Little's law: completions a busy second, times the time each may take."""

from math import inf, nan

import pytest

from tidegate.admission.littles_law import LittlesLaw


def finish(law: LittlesLaw, *, per_s: int, seconds: int, start_s: float = 0.0) -> float:
    """Complete so many a second; returns when it ended."""
    for number in range(per_s * seconds + 1):
        law.completed(start_s + number / per_s)
    return start_s + seconds


def test_the_limit_is_rate_times_time() -> None:
    """Eight completions a second and three seconds each make 24 in flight."""
    law = LittlesLaw()
    now_s = finish(law, per_s=8, seconds=20, start_s=1000.0)
    assert law.limit(3.0, now_s) == pytest.approx(24.0, rel=0.02)
    assert law.limit(0.01, now_s) == 1.0


def test_it_knows_nothing_at_first() -> None:
    """No limit before two seconds and ten completions were seen."""
    law = LittlesLaw()
    assert law.limit(3.0, 0.0) is None
    assert law.limit(3.0, finish(law, per_s=100, seconds=1)) is None
    slow = LittlesLaw()
    assert slow.limit(3.0, finish(slow, per_s=1, seconds=8)) is None


@pytest.mark.parametrize("target_s", [0.0, -1.0, nan, inf])
def test_a_target_that_is_no_time(target_s: float) -> None:
    """Without a time there is no limit."""
    law = LittlesLaw()
    assert law.limit(target_s, finish(law, per_s=8, seconds=20)) is None


def test_idle_time_does_not_count() -> None:
    """A server that was asked for little has not become slow; what it completes meanwhile says nothing either."""
    law = LittlesLaw()
    law.watch(busy=True, now_s=0.0)
    now_s = finish(law, per_s=8, seconds=10)
    law.watch(busy=False, now_s=now_s)
    now_s = finish(law, per_s=1, seconds=100, start_s=now_s)
    assert law.limit(3.0, now_s) == pytest.approx(24.0, rel=0.02)
    law.watch(busy=True, now_s=now_s)
    now_s = finish(law, per_s=2, seconds=12, start_s=now_s)
    assert law.limit(3.0, now_s) == pytest.approx(6.0, rel=0.1)


def test_it_forgets_after_ten_busy_seconds() -> None:
    """A server that has become four times slower is known to be so ten seconds later."""
    law = LittlesLaw()
    now_s = finish(law, per_s=16, seconds=20)
    now_s = finish(law, per_s=4, seconds=12, start_s=now_s)
    assert law.limit(3.0, now_s) == pytest.approx(12.0, rel=0.1)


def test_a_busy_server_that_completes_nothing() -> None:
    """A standstill takes the rate down however rarely somebody calls."""
    law = LittlesLaw()
    now_s = finish(law, per_s=8, seconds=10)
    limit = law.limit(3.0, now_s + 90.0)
    assert limit is not None
    assert limit < 3.0
