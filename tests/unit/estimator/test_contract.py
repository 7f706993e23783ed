"""What every estimator does with what the caller says about the length, and with answers that were cut."""

from collections.abc import Callable
from math import exp

import pytest

from tests.unit.estimator.asking import LENGTHS, quantiles, request, taught
from tidegate_estimator import Estimator, GuardedEstimator, NgramEstimator, Source, WindowEstimator

pytestmark = pytest.mark.parametrize("make", [WindowEstimator, NgramEstimator, GuardedEstimator])
Make = Callable[[], Estimator]


@pytest.mark.parametrize("max_tokens", [16384, None])
def test_a_generous_cap_is_not_the_estimate(make: Make, max_tokens: int | None) -> None:
    """After 500 answers of 50 +- 10 the estimate is near 50, whether or not the caller allows 16,384."""
    estimator = make()
    for length in LENGTHS:
        estimator.learn(estimator.estimate(request(max_tokens=max_tokens)).ticket, round(length), "stop")
    for cap in (16384, None):
        estimate = estimator.estimate(request(max_tokens=cap))
        assert estimate.source is Source.TENANT_MODEL
        assert 46 <= estimate.p50 <= 55
        assert 46 <= estimate.mean <= 56
        assert 54 <= estimate.p90 <= estimate.p95 <= 75
        assert exp(estimate.log_mean) == pytest.approx(estimate.p50, rel=0.02)
        assert 0.1 <= estimate.log_sigma <= 0.25


def test_caps_bound_quantiles_and_mean_but_not_the_log_normal(make: Make) -> None:
    """A cap of 20 bounds every figure in tokens; log_mean stays what the answer would have been."""
    estimate = taught(make(), LENGTHS[:100]).estimate(request(max_tokens=20))
    assert max(*quantiles(estimate), estimate.mean) <= 20
    assert exp(estimate.log_mean) > 40


def test_sequences_multiply(make: Make) -> None:
    """n = 4 costs four answers, and its cap is four caps."""
    estimator = taught(make(), LENGTHS[:100])
    one, four = estimator.estimate(request()), estimator.estimate(request(sequences=4))
    assert four.p50 == pytest.approx(4 * one.p50)
    assert four.mean == pytest.approx(4 * one.mean)
    assert estimator.estimate(request(sequences=4, max_tokens=30)).p95 == 120


def test_answers_of_several_sequences_teach_one(make: Make) -> None:
    """400 tokens in 8 sequences are answers of 50."""
    assert taught(make(), [400.0] * 200, sequences=8).estimate(request()).p50 == pytest.approx(50, rel=0.1)


def test_min_tokens_raises(make: Make) -> None:
    """An answer that must have 200 tokens is not expected to have 50."""
    estimate = taught(make(), LENGTHS[:100]).estimate(request(min_tokens=200))
    assert min(*quantiles(estimate), estimate.mean) >= 200


@pytest.mark.parametrize("facts", [{"ignore_eos": True}, {"min_tokens": 700}, {"min_tokens": 9000}])
def test_a_forced_length_is_the_cap(make: Make, facts: dict[str, int]) -> None:
    """ignore_eos, or a minimum at the cap, means the cap exactly; and the answer teaches nothing about the model."""
    estimator = taught(make(), LENGTHS[:100])
    before = estimator.estimate(request())
    estimate = estimator.estimate(request(max_tokens=700, **facts))  # type: ignore[arg-type]
    assert estimate.source is Source.CAP
    assert [*quantiles(estimate), estimate.mean] == [pytest.approx(700)] * 5
    assert exp(estimate.log_mean) == pytest.approx(700)
    assert estimate.log_sigma < 0.05
    assert not estimator.learn(estimate.ticket, 700, "length")
    assert estimator.estimate(request()) == before


@pytest.mark.parametrize(("reason", "cap"), [("length", 60), ("", 60), ("abort", None)])
def test_answers_cut_short_do_not_teach_the_cut(make: Make, reason: str, cap: int | None) -> None:
    """Half of the answers are cut at 60 of about 200 tokens: the estimate stays near 200."""
    estimator = taught(make(), [150.0, 200.0, 260.0] * 30)
    for i in range(120):
        if i % 2:
            estimator.learn(estimator.estimate(request(max_tokens=cap)).ticket, 60, reason)
        else:
            estimator.learn(estimator.estimate(request()).ticket, (150, 200, 260)[i % 3], "stop")
    assert 150 <= estimator.estimate(request()).p50 <= 270


def test_cuts_above_what_was_expected_raise_the_estimate(make: Make) -> None:
    """Answers cut at 4,000 where 50 were expected show that 50 is wrong, but not that answers have no end."""
    estimator = taught(make(), LENGTHS[:64])
    for _ in range(200):
        estimator.learn(estimator.estimate(request(max_tokens=4000)).ticket, 4000, "length")
    assert 3500 < estimator.estimate(request()).p50 < 60_000


def test_cuts_alone_do_not_raise_the_estimate_for_ever(make: Make) -> None:
    """A tenant whose every answer is cut at 60 says nothing about longer ones."""
    estimator = make()
    for _ in range(500):
        estimator.learn(estimator.estimate(request(max_tokens=60)).ticket, 60, "length")
    assert 60 < estimator.estimate(request()).p50 < 60 * exp(2.5) * 1.1


def test_an_engines_own_bound_is_a_length(make: Make) -> None:
    """An engine that cuts at its default of 16 where the caller stated no bound will do so again."""
    estimator = make()
    for _ in range(200):
        estimator.learn(estimator.estimate(request()).ticket, 16, "length")
    assert estimator.estimate(request()).p50 == pytest.approx(16, rel=0.15)


@pytest.mark.parametrize(("tokens", "reason"), [(0, "abort"), (0, "stop"), (-5, "stop"), (2**40, "stop"), (10**30, "")])
def test_what_says_nothing_teaches_nothing(make: Make, tokens: int, reason: str) -> None:
    """An abort before the first token, or a count that cannot be, changes no estimate."""
    estimator = taught(make(), LENGTHS[:100])
    before = estimator.estimate(request())
    assert not estimator.learn(before.ticket, tokens, reason)
    assert estimator.estimate(request()) == before


def test_remaining_falls_to_the_cap_and_grows_in_the_tail(make: Make) -> None:
    """An answer that has outlived its expectation is expected to go on, never past the caller's cap."""
    estimator = taught(make(), LENGTHS)
    ticket = estimator.estimate(request()).ticket
    assert estimator.remaining(ticket, 0) == pytest.approx(51, rel=0.1)
    assert 4 < estimator.remaining(ticket, 45) < 15
    assert estimator.remaining(ticket, 5000) > estimator.remaining(ticket, 500) > 0
    capped = estimator.estimate(request(max_tokens=300)).ticket
    assert estimator.remaining(capped, 299) <= 1
    assert estimator.remaining(capped, 300) == 0
    assert estimator.remaining(b"not a ticket", 0) > 0
