"""The learned concurrency: where it goes on engines whose throughput is known."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.admission.throughput_knee import LEVELS, ThroughputKnee


def saturate(
    knee: ThroughputKnee, throughput_of: Callable[[int], float], *, completions: int, now_s: float = 0.0
) -> float:
    """Keep an engine full up to the limit, with requests of one service second each; the time at the end."""
    for _ in range(completions):
        level = knee.level(knee.slots)
        took_s = 1.0 / throughput_of(knee.slots)
        now_s += took_s
        knee.passed(level, took_s)
        knee.ended(level, 1.0, now_s)
    return now_s


def workers(count: int) -> Callable[[int], float]:
    return lambda in_flight: float(min(in_flight, count))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128])
def test_it_finds_as_many_as_there_are_workers(count: int) -> None:
    """From a start at 8 it walks to the number, is there almost always, and knows where nobody waits."""
    knee = ThroughputKnee()
    now_s = saturate(knee, workers(count), completions=400 * len(LEVELS))
    seen = []
    for _ in range(3000):
        now_s = saturate(knee, workers(count), completions=1, now_s=now_s)
        seen.append(knee.slots)
    assert seen.count(count) > 0.6 * len(seen)
    assert set(seen) <= {LEVELS[place] for place in range(len(LEVELS)) if abs(place - LEVELS.index(count)) <= 1}
    assert knee.quiet in {LEVELS[max(LEVELS.index(count) - 1, 0)], LEVELS[max(LEVELS.index(count) - 2, 0)]}


@pytest.mark.parametrize("count", [5, 7, 10, 20, 27, 100])
def test_between_two_levels_it_loses_little(count: int) -> None:
    """Where no level is the number of workers, the one it takes does at least 0.85 of what they can."""
    knee = ThroughputKnee()
    now_s, done = saturate(knee, workers(count), completions=400 * len(LEVELS)), 4000
    ended_s = saturate(knee, workers(count), completions=done, now_s=now_s)
    assert done / (ended_s - now_s) >= 0.85 * count


def test_an_engine_that_batches() -> None:
    """Throughput that grows slower than what is in flight is followed while it grows by a quarter as fast."""
    knee = ThroughputKnee()
    saturate(knee, lambda n: n / (1.0 + n / 16.0), completions=20_000)  # at most 16; 8 at 16, 12 at 48
    assert 24 <= knee.slots <= 96


def test_it_follows_an_engine_that_lost_half_of_its_workers() -> None:
    """Within a few minutes it is at the new number."""
    knee = ThroughputKnee()
    now_s = saturate(knee, workers(16), completions=8000)
    saturate(knee, workers(8), completions=6000, now_s=now_s)
    assert knee.slots in (6, 8, 12)
    now_s = saturate(knee, workers(32), completions=40_000, now_s=now_s)
    assert knee.slots in (24, 32, 48)


@pytest.mark.parametrize(("start", "after"), [(16, 8), (2, 1), (1, 1)])
def test_endings_in_a_row_without_an_answer_take_the_limit_down(start: int, after: int) -> None:
    """As many as there are places, at least 4: two levels at once, whatever is known. One answer begins a new row."""
    knee = ThroughputKnee()
    saturate(knee, workers(start), completions=8000)
    slots = knee.slots
    places = max(slots, 4)
    for _ in range(places - 1):
        knee.ended(knee.level(slots), 0.0, 1e6)
    knee.ended(knee.level(slots), 1.0, 1e6)
    assert knee.slots == slots
    for _ in range(places):
        knee.ended(knee.level(slots), 0.0, 1e6)
    assert knee.slots == LEVELS[max(LEVELS.index(slots) - 2, 0)] <= max(after, LEVELS[LEVELS.index(slots)] // 2)


def test_an_engine_that_answers_fewer_than_half_is_given_less() -> None:
    """Also where an answer comes now and then; and from the lowest level it does not climb while that lasts."""
    knee = ThroughputKnee()
    for number in range(2000):
        knee.passed(knee.level(knee.slots), 1.0)
        knee.ended(knee.level(knee.slots), float(number % 3 == 0), float(number))
    assert knee.slots == 1


def test_it_climbs_again_once_the_engine_answers() -> None:
    """What was measured in the jam does not hold it down."""
    knee = ThroughputKnee()
    for number in range(2000):
        knee.passed(knee.level(knee.slots), 1.0)
        knee.ended(knee.level(knee.slots), 0.0, float(number))
    assert knee.slots == 1
    saturate(knee, workers(8), completions=4000, now_s=2000.0)
    assert knee.slots in (6, 8, 12)


def test_an_engine_that_is_not_full_teaches_the_levels_it_reaches() -> None:
    """The limit does not move on what comes below it: nobody waits, so there is nothing to find."""
    knee = ThroughputKnee()
    for _ in range(1000):
        knee.passed(knee.level(2), 0.5)
        knee.ended(knee.level(2), 1.0, 1.0)
    assert knee.slots == 8
    assert knee.quiet == 0


@given(st.floats(1.0, 1e6))
def test_a_level_holds_what_is_at_least_its_number(in_flight: float) -> None:
    """Levels are half octaves and have no gaps."""
    level = ThroughputKnee().level(in_flight)
    assert LEVELS[level] <= in_flight
    assert level + 1 == len(LEVELS) or in_flight < LEVELS[level + 1]
    assert all(upper <= 2 * lower for lower, upper in pairwise(LEVELS))


def test_what_was_learned_survives() -> None:
    """A restart goes on where it was."""
    knee, other = ThroughputKnee(), ThroughputKnee()
    saturate(knee, workers(16), completions=6000)
    other.restore(knee.dump())
    assert (other.slots, other.quiet) == (knee.slots, knee.quiet)
    assert other.dump() == knee.dump()


@pytest.mark.parametrize(
    "damage",
    [{"at": 99.0}, {"at": 1.5}, {"at": -1.0}, {"quiet": 5.0}, {"seconds": [1.0]}, {"work_s": [-1.0] * len(LEVELS)}],
)
def test_a_damaged_record_changes_nothing(damage: dict[str, object]) -> None:
    """It is refused as a whole."""
    knee = ThroughputKnee()
    before = knee.dump()
    with pytest.raises(ValueError, match=r"out of range|not"):
        knee.restore(before | damage)
    assert knee.dump() == before
