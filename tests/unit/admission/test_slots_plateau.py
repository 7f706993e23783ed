"""Slots: the plateau of what runs while somebody waits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.admission.slots_plateau import SlotsPlateau


def test_a_stated_figure_stays() -> None:
    """No reading argues with the operator."""
    slots = SlotsPlateau(64)
    for _ in range(10):
        slots.reading(32, 5)
    assert slots.slots == 64


@pytest.mark.parametrize("stated", [0, -4])
def test_less_than_one_slot_is_refused(stated: int) -> None:
    """An engine without slots runs nothing."""
    with pytest.raises(ValueError, match="below 1"):
        SlotsPlateau(stated)


def test_three_readings_that_agree() -> None:
    """Two are chance; the third, within one of them, is the plateau, and the largest of the three is taken."""
    slots = SlotsPlateau()
    slots.reading(48, 3)
    slots.reading(47, 9)
    assert slots.slots == 256
    slots.reading(48, 1)
    assert slots.slots == 48


def test_readings_that_do_not_agree() -> None:
    """What waits for KV blocks runs a number that moves: no plateau."""
    slots = SlotsPlateau()
    for running in (40, 48, 41, 45, 50, 43) * 5:
        slots.reading(running, 5)
    assert slots.slots == 256


def test_a_slow_drift_is_no_plateau() -> None:
    """Each reading is compared with all of those that count, not with its neighbour."""
    slots = SlotsPlateau()
    for running in range(100, 40, -1):
        slots.reading(running, 5)
    assert slots.slots == 256


def test_a_reading_without_anybody_waiting_begins_anew() -> None:
    """Three readings in a row, or none."""
    slots = SlotsPlateau()
    for _ in range(10):
        slots.reading(48, 3)
        slots.reading(48, 3)
        slots.reading(30, 0)
    assert slots.slots == 256


def test_a_full_cache_explains_the_wait() -> None:
    """Where the KV blocks are used up, those that wait do not wait for slots."""
    slots = SlotsPlateau()
    for _ in range(10):
        slots.reading(48, 3, kv_usage=0.97)
    assert slots.slots == 256
    for _ in range(3):
        slots.reading(48, 3, kv_usage=0.5)
    assert slots.slots == 48


def test_a_plateau_that_was_too_low_is_left_again() -> None:
    """One more for each reading that finds all running and nobody waiting, up to where it began."""
    slots = SlotsPlateau(start=64)
    for _ in range(3):
        slots.reading(20, 3)
    slots.reading(19, 0)
    assert slots.slots == 20
    for _ in range(5):
        slots.reading(slots.slots, 0)
    assert slots.slots == 25
    slots.reading(40, 0)
    assert slots.slots == 40
    for _ in range(100):
        slots.reading(slots.slots, 0)
    assert slots.slots == 64
    slots.reading(70, 2)
    assert slots.slots == 70


@given(st.lists(st.tuples(st.integers(-5, 2000), st.integers(-5, 50), st.none() | st.floats()), max_size=60))
def test_there_is_always_a_slot(readings: list[tuple[int, int, float | None]]) -> None:
    """Whatever is read, at least one and no more than were ever seen to run, or the start."""
    slots = SlotsPlateau()
    for running, waiting, kv_usage in readings:
        slots.reading(running, waiting, kv_usage)
        assert 1 <= slots.slots <= max(256, *(seen for seen, _, _ in readings))
