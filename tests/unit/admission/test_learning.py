"""The running estimates: time a token, drain rate, ramp."""

from typing import Any

import pytest

from tidegate.admission.drain_rate import DrainRate
from tidegate.admission.outcome import Ending
from tidegate.admission.pace import Pace, tpot_s
from tidegate.admission.ramp import Ramp

from .builders import outcome


def test_time_a_token_of_a_stream() -> None:
    """The first token belongs to the prefill, so a stream counts what came after it."""
    assert tpot_s(outcome(completion_tokens=101, ttft_s=0.5, e2e_s=2.5)) == pytest.approx(0.02)


def test_time_a_token_of_a_whole_answer() -> None:
    """Nobody saw the first token of a whole answer: its time is spread over all."""
    assert tpot_s(outcome(stream=False, completion_tokens=100, ttft_s=None, e2e_s=4.0)) == pytest.approx(0.04)


@pytest.mark.parametrize(
    "facts",
    [
        {"completion_tokens": None},
        {"completion_tokens": 1},
        {"completion_tokens": -3},
        {"e2e_s": None},
        {"ttft_s": None},
        {"ttft_s": 9.0},
        {"e2e_s": float("nan")},
        {"e2e_s": float("inf")},
        {"ending": Ending.CLIENT_CANCELLED},
        {"ending": Ending.ENGINE_FAILED},
    ],
)
def test_what_teaches_nothing(facts: dict[str, Any]) -> None:
    """An outcome without tokens, times or a whole answer leaves the estimate alone."""
    pace = Pace()
    assert not pace.learn(outcome(**facts))
    assert pace.tau_s == 0.05


def test_it_converges() -> None:
    """After fifty answers at 20 ms a token the estimate is near it."""
    pace = Pace()
    for _ in range(50):
        assert pace.learn(outcome())
    assert pace.tau_s == pytest.approx(0.02, rel=0.02)


def test_one_outlier_moves_it_little() -> None:
    """One answer at a million times the pace moves the estimate by at most 30 %, and short ones by less."""
    pace, short = Pace(), Pace()
    pace.learn(outcome(e2e_s=1e6))
    short.learn(outcome(e2e_s=1e6, completion_tokens=2))
    assert 0.05 < short.tau_s < pace.tau_s <= 0.065


def test_drain_rate_follows_what_is_admitted() -> None:
    """While somebody waits, each second moves the rate a fifth of the way to what each engine took up in it."""
    rate = DrainRate()
    rate.watch(waiting=True, now_s=0.0)
    rate.admitted(4.0)
    rate.roll(engines=2, now_s=0.9)
    assert rate.value == 1.0
    rate.roll(engines=2, now_s=1.0)
    assert rate.value == pytest.approx(0.8 + 0.2 * 2.0)


def test_drain_rate_is_clipped() -> None:
    """Neither a burst nor a standstill takes the rate out of 0.2 to 3."""
    burst, standstill = DrainRate(), DrainRate()
    burst.watch(waiting=True, now_s=0.0)
    standstill.watch(waiting=True, now_s=0.0)
    for second in range(1, 100):
        burst.admitted(1e9)
        burst.roll(engines=1, now_s=float(second))
        standstill.roll(engines=1, now_s=float(second))
    assert burst.value == pytest.approx(3.0)
    assert standstill.value == pytest.approx(0.2)


def test_drain_rate_counts_waiting_time_only() -> None:
    """A second of waiting may come in parts; what is admitted while nobody waits counts for nothing."""
    rate = DrainRate()
    for start_s in (0.0, 10.0):
        rate.watch(waiting=True, now_s=start_s)
        rate.admitted(1.0)
        rate.watch(waiting=False, now_s=start_s + 0.5)
        rate.admitted(100.0)
    rate.watch(waiting=True, now_s=20.0)
    assert rate.closes_at_s == 20.0
    rate.roll(engines=1, now_s=20.0)
    assert rate.value == pytest.approx(0.8 + 0.2 * 2.0)


def test_without_engines_nothing_is_learned() -> None:
    """An outage says nothing about how fast engines are."""
    rate = DrainRate()
    rate.watch(waiting=True, now_s=0.0)
    rate.roll(engines=0, now_s=5.0)
    assert (rate.value, rate.closes_at_s) == (1.0, 6.0)


def test_the_ramp_climbs_from_a_quarter_to_all() -> None:
    """The share is a quarter at the start, all after ten seconds, and straight in between."""
    ramp = Ramp(start_s=100.0)
    assert [ramp.share(100.0 + s) for s in (0.0, 5.0, 10.0, 99.0)] == [0.25, 0.625, 1.0, 1.0]


@pytest.mark.parametrize("start_s", [0.0, 1234.567, 9_876_543.21])
def test_the_ramp_steps_come_one_after_another(start_s: float) -> None:
    """Going from step to step reaches the whole share in a hundred steps, whatever the rounding of the clock."""
    ramp, now_s, shares = Ramp(start_s=start_s), start_s, [0.25]
    while (step_s := ramp.next_step_s(now_s)) is not None:
        assert step_s > now_s
        now_s = step_s
        shares.append(ramp.share(now_s))
        assert len(shares) <= 101
    assert len(shares) == 101
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
