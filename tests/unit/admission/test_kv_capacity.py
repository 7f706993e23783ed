"""KV capacity: found from readings, from stalls without them, and never out of bounds."""

from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.admission.kv_capacity import KvCapacity


@pytest.mark.parametrize("true_tokens", [20_000, 100_000, 500_000])
def test_thirty_readings_find_a_capacity_five_times_off(true_tokens: int) -> None:
    """With usage between a fifth and full, and blocks partly filled, it is within 10 % of the truth."""
    capacity, rng = KvCapacity(None), np.random.default_rng(0)
    for _ in range(30):
        usage = rng.uniform(0.2, 1.0)
        capacity.reading(usage * true_tokens * rng.normal(1.0, 0.05), usage)
    assert capacity.tokens == pytest.approx(true_tokens, rel=0.1)


def test_shared_prefixes_make_it_larger() -> None:
    """What counts is how much of the books' tokens fits: with half of them shared, twice as much."""
    capacity = KvCapacity(None)
    for _ in range(60):
        capacity.reading(80_000, 0.4)
    assert capacity.tokens == pytest.approx(200_000, rel=0.02)


def test_a_change_is_followed() -> None:
    """After long experience a reading weighs a fiftieth, so 150 of them take up 95 % of a change."""
    capacity = KvCapacity(None)
    for _ in range(500):
        capacity.reading(50_000, 0.5)
    before = capacity.tokens
    capacity.reading(100_000, 0.5)
    assert capacity.tokens == pytest.approx(before * 1.02, rel=1e-3)
    for _ in range(150):
        capacity.reading(100_000, 0.5)
    assert capacity.tokens == pytest.approx(200_000, rel=0.05)


@pytest.mark.parametrize(
    ("own_kv_tokens", "usage"),
    [(1000, 0.15), (1000, 0.0), (1000, nan), (1000, 1.5), (1000, -1.0), (nan, 0.5), (inf, 0.5), (0, 0.5), (-5, 0.5)],
)
def test_readings_that_say_nothing(own_kv_tokens: float, usage: float) -> None:
    """An almost empty cache, or figures that cannot be, change nothing; nor do they count as readings."""
    capacity = KvCapacity(None)
    capacity.reading(own_kv_tokens, usage)
    assert capacity.tokens == 100_000
    for tenth in range(161):
        capacity.tick(tenth / 10, limited=True)
    assert capacity.tokens > 100_000


def test_a_stated_capacity_is_an_upper_bound() -> None:
    """Readings may lower what the operator stated, slowly at first, and raise it back, not beyond."""
    capacity = KvCapacity(100_000)
    capacity.reading(50_000, 0.2)
    assert capacity.tokens == 100_000
    capacity.reading(25_000, 0.5)
    assert 90_000 < capacity.tokens < 100_000
    for _ in range(200):
        capacity.reading(25_000, 0.5)
    assert capacity.tokens == pytest.approx(50_000, rel=0.02)
    for _ in range(500):
        capacity.reading(90_000, 0.5)
    assert capacity.tokens == 100_000


def test_a_stall_lowers_it_below_what_was_held() -> None:
    """A tenth below what the engine held when it stalled, or below what was believed, whichever is less."""
    held, believed = KvCapacity(None), KvCapacity(None)
    held.tick(0.0, limited=False)
    believed.tick(0.0, limited=False)
    held.stalled(60_000)
    believed.stalled(150_000)
    assert held.tokens == pytest.approx(0.9 * 1.05 * 60_000)
    assert believed.tokens == pytest.approx(90_000)


def test_stalls_of_one_overflow_count_once() -> None:
    """Within five seconds more stalls are the same news; later ones are not."""
    capacity = KvCapacity(None)
    for now_s in (0.0, 1.0, 4.9):
        capacity.tick(now_s, limited=True)
        capacity.stalled(200_000)
    assert capacity.tokens == pytest.approx(90_000)
    capacity.tick(5.0, limited=True)
    capacity.stalled(200_000)
    assert capacity.tokens == pytest.approx(81_000)


def test_growth_where_nobody_measures() -> None:
    """From 15 s without a stall on, two thousandths each tenth of a second in which somebody waits for KV tokens."""
    capacity = KvCapacity(None)
    for tenth in range(151):
        capacity.tick(tenth / 10, limited=True)
    assert capacity.tokens == 100_000
    for tenth in range(151, 161):
        capacity.tick(tenth / 10, limited=True)
    assert capacity.tokens == pytest.approx(100_000 * 1.002**10, rel=1e-6)
    for tenth in range(161, 171):
        capacity.tick(tenth / 10, limited=False)
    assert capacity.tokens == pytest.approx(100_000 * 1.002**10, rel=1e-6)
    capacity.stalled(200_000)
    lowered = capacity.tokens
    for tenth in range(171, 300):
        capacity.tick(tenth / 10, limited=True)
    assert capacity.tokens == lowered


def test_a_long_pause_is_not_made_up_for() -> None:
    """A caller that comes back after a minute gets at most a second's growth."""
    capacity = KvCapacity(None)
    capacity.tick(0.0, limited=True)
    capacity.tick(15.0, limited=True)
    capacity.tick(75.0, limited=True)
    assert capacity.tokens <= 100_000 * 1.002**10 + 1


def test_no_growth_where_somebody_measures_or_states() -> None:
    """Readings decide where there are any, and a stated figure is only grown back to."""
    measured, stated = KvCapacity(None), KvCapacity(100_000)
    measured.reading(50_000, 0.5)
    stated.tick(0.0, limited=True)
    stated.stalled(100_000)
    for tenth in range(1, 1000):
        measured.tick(tenth / 10, limited=True)
        stated.tick(tenth / 10, limited=True)
    assert measured.tokens == 100_000
    assert stated.tokens == 100_000


def test_a_capacity_below_one_is_refused() -> None:
    """Nothing fits an engine without KV tokens."""
    with pytest.raises(ValueError, match="below 1"):
        KvCapacity(0)
    with pytest.raises(ValueError, match="below 1"):
        KvCapacity(None, start=0)


events = st.one_of(
    st.tuples(st.just("reading"), st.floats() | st.floats(0, 1e7), st.floats() | st.floats(0, 1)),
    st.tuples(st.just("stall"), st.floats() | st.floats(0, 1e7), st.just(0.0)),
    st.tuples(st.just("tick"), st.floats(0.0, 30.0), st.sampled_from([0.0, 1.0])),
)


@given(stated=st.none() | st.integers(1, 10**7), events=st.lists(events, max_size=60))
def test_whatever_it_is_told_it_stays_within_bounds(stated: int | None, events: list[tuple[str, float, float]]) -> None:
    """From an eighth of the start to eight times it, never above a stated figure, never below one token."""
    capacity, now_s = KvCapacity(stated), 0.0
    first = 100_000 if stated is None else stated
    for event, figure, other in events:
        if event == "reading":
            capacity.reading(figure, other)
        elif event == "stall":
            capacity.stalled(figure)
        else:
            now_s += figure
            capacity.tick(now_s, limited=bool(other))
        assert max(first // 8, 1) <= capacity.tokens <= (8 * first if stated is None else stated)
