"""What an engine did until when."""

import pytest

from tidegate.admission.history import History, Totals

NOW = Totals(100.0, 1000.0, 50.0, 500.0, 60.0, 5.0)


def totals(value: float) -> Totals:
    return Totals(*(value * factor for factor in (1.0, 10.0, 0.5, 5.0, 0.6, 0.05)))


def test_between_two_points_it_is_a_straight_line() -> None:
    """Every one of the sums is interpolated."""
    history = History()
    history.note(0.0, totals(0.0))
    history.note(10.0, totals(100.0))
    assert history.at(2.5, 20.0, totals(300.0)) == pytest.approx(totals(25.0))


def test_after_the_latest_point_it_leads_to_now() -> None:
    """From the latest point to the totals of now; now and later are the totals of now."""
    history = History()
    history.note(0.0, totals(0.0))
    assert history.at(5.0, 10.0, NOW) == pytest.approx(totals(50.0))
    assert history.at(10.0, 10.0, NOW) is NOW
    assert history.at(11.0, 10.0, NOW) is NOW


def test_a_point_is_what_was_noted_then() -> None:
    """At the very time of a point, its totals."""
    history = History()
    for second in range(5):
        history.note(float(second), totals(float(second) ** 2))
    assert [history.at(float(second), 9.0, NOW) for second in range(5)] == [totals(float(s) ** 2) for s in range(5)]


def test_before_the_first_point_nobody_knows() -> None:
    """Neither of what was before the book began, nor in a book without points."""
    history = History()
    assert history.at(0.0, 1.0, NOW) is None
    history.note(1.0, totals(0.0))
    assert history.at(0.999, 2.0, NOW) is None


def test_points_are_a_tenth_of_a_second_apart() -> None:
    """The next is due once a tenth of a second has passed; the first at once."""
    history = History()
    assert history.is_due(0.0)
    history.note(0.0, totals(0.0))
    assert not history.is_due(0.09)
    assert history.is_due(0.1)


def test_what_is_long_ago_is_forgotten() -> None:
    """The 2,048 latest points are always there, and never more than twice as many."""
    history, last = History(), 0
    for last in range(10_000):
        history.note(float(last), totals(float(last)))
    assert history.at(float(last - 2047), 1e6, NOW) == totals(float(last - 2047))
    assert history.at(float(last - 4096), 1e6, NOW) is None


def test_two_points_at_one_time_are_no_slope() -> None:
    """Where now is the very time of the latest point, a time just before it comes from the point before."""
    history = History()
    history.note(1.0, totals(1.0))
    history.note(1.0, totals(2.0))
    assert history.at(1.0, 1.5, totals(3.0)) == totals(2.0)
