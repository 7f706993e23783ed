"""An engine's health: what takes it down, for how long, and how it comes back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.admission.health import Health


def crashed(now_s: float) -> Health:
    """An engine just taken down for a second."""
    health = Health()
    health.failed(now_s, connect=True)
    return health


def test_it_begins_well() -> None:
    """All of its limits, and nothing to come."""
    health = Health()
    assert (health.share(0.0), health.down(0.0), health.next_change_s(0.0)) == (1.0, False, None)


def test_a_connect_failure_takes_it_down_at_once() -> None:
    """One is enough: nobody is there. After a second it is probed for another, then has a quarter, and in ten all."""
    health = crashed(100.0)
    assert health.down(100.0)
    assert health.next_change_s(100.0) == 101.0
    times_s = (100.0, 100.99, 101.0, 101.99, 102.0, 107.0, 112.0)
    assert [health.share(s) for s in times_s] == [0.0, 0.0, 0.01, 0.01, 0.25, 0.625, 1.0]
    assert not health.down(101.0)
    assert health.next_change_s(101.0) == 102.0
    assert health.next_change_s(112.0) is None


def test_one_that_answered_with_errors_is_not_probed() -> None:
    """Whoever was reached comes back with a quarter at once."""
    health = Health()
    for _ in range(3):
        health.failed(0.0, connect=False)
    assert [health.share(s) for s in (0.99, 1.0)] == [0.0, 0.25]


def test_three_failures_in_a_row_take_it_down() -> None:
    """Two and a success do not."""
    health = Health()
    for now_s in range(10):
        health.failed(float(now_s), connect=False)
        health.failed(float(now_s), connect=False)
        health.succeeded(float(now_s))
    assert health.share(10.0) == 1.0
    for _ in range(3):
        assert not health.down(10.0)
        health.failed(10.0, connect=False)
    assert health.down(10.0)


def test_one_failure_is_enough_on_trial() -> None:
    """Until its share is whole again a single failure takes it down, for twice as long."""
    health = crashed(0.0)
    health.failed(10.9, connect=False)
    assert health.next_change_s(10.9) == pytest.approx(12.9)
    assert health.share(12.8) == 0.0


def test_the_time_down_doubles_to_thirty_seconds() -> None:
    """1, 2, 4, 8, 16, 30, 30 seconds, each followed by a trial that fails at once."""
    health, now_s, spans_s = Health(), 0.0, []
    for _ in range(7):
        health.failed(now_s, connect=True)
        back_s = health.next_change_s(now_s)
        assert back_s is not None
        spans_s.append(back_s - now_s)
        now_s = back_s
    assert spans_s == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_a_whole_trial_without_failure_forgets_the_doubling() -> None:
    """After it, the next time down is a second again, and it takes three failures again."""
    health = crashed(0.0)
    health.failed(1.0, connect=True)
    health.failed(14.0, connect=False)
    health.failed(14.0, connect=False)
    assert not health.down(14.0)
    health.failed(14.0, connect=False)
    assert health.next_change_s(14.0) == 15.0


def test_nothing_counts_while_it_is_down() -> None:
    """The requests that were in flight fail or end late; that makes it neither longer down nor well."""
    health = crashed(0.0)
    for _ in range(50):
        health.failed(0.5, connect=True)
        health.refused(0.5)
        health.succeeded(0.5)
    assert health.next_change_s(0.5) == 1.0
    assert health.share(2.0) == 0.25


def test_a_refusal_halves_the_share_once_a_second() -> None:
    """However many come within it; ten seconds later the share is whole."""
    health = Health()
    for now_s in (0.0, 0.1, 0.9):
        health.refused(now_s)
    assert health.share(0.05) == 0.5
    assert health.share(5.0) == 0.75
    health.refused(5.0)
    assert health.share(5.0) == 0.375
    assert health.share(15.0) == 1.0
    assert not health.down(5.0)


def test_refusals_leave_a_tenth() -> None:
    """An engine that refuses everything still gets a tenth, to see whether it goes on."""
    health = Health()
    for second in range(20):
        health.refused(float(second))
    assert health.share(19.0) == 0.1


def test_a_refusal_on_trial_is_no_failure() -> None:
    """Congestion right after a return lowers the share further, but does not take the engine down."""
    health = crashed(0.0)
    health.refused(2.0)
    assert (health.share(2.0), health.down(2.0)) == (0.125, False)


@pytest.mark.parametrize("start_s", [0.0, 1234.567, 9_876_543.21])
def test_its_changes_come_one_after_another(start_s: float) -> None:
    """Going from change to change sees the probe and each of the hundred steps up, whatever the clock's rounding."""
    health, now_s, shares = crashed(start_s), start_s, [0.0]
    while (change_s := health.next_change_s(now_s)) is not None:
        assert change_s > now_s
        assert health.share(now_s + 0.9 * (change_s - now_s)) == shares[-1]
        now_s = change_s
        shares.append(health.share(now_s))
        assert len(shares) <= 103
    assert len(shares) == 103
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.01, 0.3, 1.0, 7.0, 40.0]), st.sampled_from(["ok", "5xx", "reset", "429"])),
        max_size=80,
    )
)
def test_whatever_happens_it_comes_back(events: list[tuple[float, str]]) -> None:
    """The share is 0 only while it is down, at most 30 s, and no probe outlasts a second; it is whole in 41 s."""
    health, now_s = Health(), 0.0
    for step_s, event in events:
        now_s += step_s
        match event:
            case "ok":
                health.succeeded(now_s)
            case "429":
                health.refused(now_s)
            case _:
                health.failed(now_s, connect=event == "reset")
        assert (health.share(now_s) == 0.0) == health.down(now_s)
        assert health.down(now_s) or 0.1 <= health.share(now_s) <= 1.0 or health.share(now_s) == 0.01
        assert not health.down(now_s + 30.0)
        assert health.share(now_s + 31.01) >= 0.1
    assert health.share(now_s + 41.01) == 1.0
