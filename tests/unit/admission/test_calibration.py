"""Calibration of lengths: bias and spread are found, quickly, in spite of answers that have not ended."""

import heapq
from math import exp, inf, log, nan
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.admission.calibration import BUCKETS, Calibration

SIGMA = 0.6


def teach(
    calibration: Calibration, count: int, *, bias: float, seed: int = 0, log_mean: float = 6.0, longer: float = 1.0
) -> None:
    """Log-normal answers, `longer` than their estimates know; these are noisy by SIGMA, and too long by `bias`."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        true = rng.normal(log_mean, 0.8)
        estimate = true + SIGMA * rng.normal() + log(bias)
        assert calibration.learn(float(estimate), SIGMA, max(longer * exp(true), 1.0))


def test_without_answers_it_changes_nothing() -> None:
    """An estimate is believed as it is until something is known."""
    assert Calibration().calibrate(5.5, 0.7) == pytest.approx((5.5, 0.7))


@pytest.mark.parametrize("bias", [0.2, 0.5, 1.0, 2.0, 5.0])
def test_a_bias_of_all_is_known_after_thirty_answers(bias: float) -> None:
    """Thirty answers spread over many buckets correct a uniform bias to within 30 %, also where none of them fell."""
    errors = []
    for seed in range(5):
        calibration = Calibration()
        teach(calibration, 30, bias=bias, seed=seed)
        errors.append([calibration.calibrate(m + log(bias), SIGMA)[0] - m for m in (5.5, 6.0, 6.5, 9.0)])
    assert np.abs(np.mean(errors, axis=0)[:3]).max() < 0.25
    assert abs(float(np.mean(errors, axis=0)[3])) < 0.3


def test_regression_to_the_mean_is_learned_bucket_by_bucket() -> None:
    """Noisy estimates are too extreme; in the long run each bucket believes the conditional mean."""
    calibration = Calibration()
    teach(calibration, 4000, bias=1.0)
    reliability = 0.8**2 / (0.8**2 + SIGMA**2)
    for raw in (5.0, 5.5, 6.0, 6.5, 7.0):
        assert calibration.calibrate(raw, SIGMA)[0] == pytest.approx(6.0 + reliability * (raw - 6.0), abs=0.17)


@pytest.mark.parametrize("stated", [0.2, 0.6, 1.5])
def test_the_spread_becomes_the_real_one(stated: float) -> None:
    """Whatever spread the estimates state, the calibrated one is that of the residuals."""
    calibration, rng = Calibration(), np.random.default_rng(1)
    for _ in range(600):
        raw = rng.uniform(5.0, 6.0)
        calibration.learn(float(raw), stated, exp(raw + 0.5 * rng.normal() + 1.0))
    assert calibration.calibrate(5.5, stated)[1] == pytest.approx(0.5, rel=0.15)


def test_a_surer_estimate_stays_surer() -> None:
    """The correction is a factor, so that two spreads keep their proportion."""
    calibration = Calibration()
    teach(calibration, 300, bias=1.0)
    assert calibration.calibrate(6.0, 0.3)[1] == pytest.approx(calibration.calibrate(6.0, SIGMA)[1] / 2.0)


def test_a_change_of_bias_is_followed() -> None:
    """After a thousand answers of one kind, four hundred that are four times as long correct all but a fifth of it."""
    calibration, fresh = Calibration(), Calibration()
    teach(calibration, 1000, bias=1.0)
    teach(calibration, 400, bias=1.0, longer=4.0, seed=1)
    teach(fresh, 400, bias=1.0, longer=4.0, seed=1)
    for raw in (5.5, 6.0, 6.5):
        assert calibration.calibrate(raw, SIGMA)[0] == pytest.approx(fresh.calibrate(raw, SIGMA)[0], abs=0.2 * log(4.0))


def young_process(answers: int, *, seed: int, bias: float, watch: bool) -> float:
    """Error of the calibrated log-mean when so many answers have ended, of six sent a second at 30 ms a token."""
    rng, calibration = np.random.default_rng(seed), Calibration()
    running: list[tuple[float, float, float, float]] = []  # ends, sent, estimate, tokens
    now_s, watched_s = 0.0, 0.0
    while calibration.answers < answers:
        now_s += rng.exponential(1.0 / 6.0)
        while running and running[0][0] <= now_s:
            _, _, estimate, tokens = heapq.heappop(running)
            calibration.learn(estimate, SIGMA, tokens)
        if watch and now_s >= watched_s + 1.0 and running:
            watched_s = now_s
            estimates = np.array([row[2] for row in running])
            generated = np.array([(now_s - row[1]) / 0.03 for row in running])
            calibration.watch(estimates, np.full(estimates.size, SIGMA), generated)
        true = rng.normal(6.3, 0.8)
        estimate = float(true + SIGMA * rng.normal() + log(bias))
        tokens = max(exp(true), 1.0)
        heapq.heappush(running, (now_s + 0.03 * tokens, now_s, estimate, tokens))
    return calibration.calibrate(6.3 + log(bias), SIGMA)[0] - 6.3


@pytest.mark.parametrize("bias", [0.2, 1.0])
def test_answers_that_still_run_take_out_the_bias_of_a_young_process(bias: float) -> None:
    """The first thirty answers to end are short ones; with those that run told as well, the mean error is halved."""
    plain = [young_process(30, seed=seed, bias=bias, watch=False) for seed in range(8)]
    watched = [young_process(30, seed=seed, bias=bias, watch=True) for seed in range(8)]
    assert np.mean(plain) < -0.15
    assert abs(np.mean(watched)) < 0.16
    assert np.mean(watched) > np.mean(plain) + 0.15


def test_in_a_steady_stream_those_that_run_no_longer_matter() -> None:
    """After a thousand answers, telling of the running ones moves the estimate by less than 3 %."""
    calibration = Calibration()
    teach(calibration, 1000, bias=1.0)
    before = calibration.calibrate(6.0, SIGMA)[0]
    rng = np.random.default_rng(3)
    calibration.watch(rng.normal(6.0, 0.8, 100), np.full(100, SIGMA), exp(6.0) * rng.random(100))
    assert before <= calibration.calibrate(6.0, SIGMA)[0] < before + 0.03


def test_running_answers_alone_raise_the_estimate() -> None:
    """Before any answer has ended, many that outlive their estimates show that these are too short."""
    calibration = Calibration()
    for _ in range(5):
        calibration.watch(np.full(50, 4.0), np.full(50, SIGMA), np.full(50, 400.0))
    assert calibration.calibrate(4.0, SIGMA)[0] > log(400.0)
    calibration.watch(np.empty(0), np.empty(0), np.empty(0))
    assert calibration.calibrate(4.0, SIGMA)[0] == pytest.approx(4.0)


def test_cut_answers_count_as_lower_bounds() -> None:
    """With every answer cut at 500 tokens the mean is found within 15 %; taken at their word they are all short."""
    censored, naive = Calibration(), Calibration()
    rng = np.random.default_rng(4)
    for _ in range(2000):
        tokens = exp(rng.normal(6.0, SIGMA))
        cut = tokens > 500.0
        censored.learn(6.0, SIGMA, min(tokens, 500.0), cut=bool(cut))
        naive.learn(6.0, SIGMA, min(tokens, 500.0))
    assert censored.calibrate(6.0, SIGMA)[0] == pytest.approx(6.0, abs=0.15)
    assert naive.calibrate(6.0, SIGMA)[0] < 5.9


@pytest.mark.parametrize("facts", [(nan, 0.6, 9), (5.0, inf, 9), (5.0, 0.6, 0), (5.0, 0.6, nan), (5.0, 0.6, inf)])
def test_what_teaches_nothing(facts: tuple[float, float, float]) -> None:
    """An answer without a length, or without an estimate, changes nothing."""
    calibration = Calibration()
    before = calibration.dump()
    assert not calibration.learn(*facts)
    assert calibration.dump() == before


def test_one_absurd_answer_moves_it_little() -> None:
    """A billion tokens where a hundred were predicted move what fifty answers taught by less than a quarter."""
    calibration = Calibration()
    teach(calibration, 50, bias=1.0, log_mean=5.0)
    before = calibration.calibrate(5.0, SIGMA)[0]
    calibration.learn(5.0, SIGMA, 1e9)
    assert calibration.calibrate(5.0, SIGMA)[0] < before + 0.22


def test_dump_and_restore() -> None:
    """A table restored from a dump, through JSON, is the same."""
    calibration, again = Calibration(), Calibration()
    teach(calibration, 300, bias=3.0)
    again.restore(msgspec.json.decode(msgspec.json.encode(calibration.dump())))
    assert again.dump() == calibration.dump()
    assert again.calibrate(6.5, SIGMA) == calibration.calibrate(6.5, SIGMA)


@pytest.mark.parametrize(
    "damage",
    [
        {"answers": -1.0},
        {"answers": "many"},
        {"sums": [0.0] * (2 * BUCKETS)},
        {"sums": [nan] * (2 * BUCKETS + 2)},
        {"sums": [1e6] * (2 * BUCKETS + 2)},
        {"sums": [0.0] * (2 * BUCKETS + 1) + [-1.0]},
        {"weights": [201.0] * (2 * BUCKETS + 2)},
        {"weights": [-1.0] * (2 * BUCKETS + 2)},
        {"weights": None},
    ],
)
def test_a_damaged_record_changes_nothing(damage: dict[str, Any]) -> None:
    """ValueError, and the table is as it was."""
    calibration = Calibration()
    teach(calibration, 20, bias=3.0)
    before = calibration.dump()
    with pytest.raises(ValueError, match=r"\w"):
        calibration.restore({**before, **damage})
    for name in before:
        with pytest.raises(ValueError, match=name):
            calibration.restore({key: value for key, value in before.items() if key != name})
    assert calibration.dump() == before


@settings(max_examples=150, deadline=None)
@given(
    answers=st.lists(
        st.tuples(
            st.floats() | st.floats(0.0, 12.0), st.floats() | st.floats(0.0, 2.0), st.floats() | st.floats(1, 1e5)
        ),
        max_size=60,
    ),
    cut=st.booleans(),
    asked=st.tuples(st.floats(), st.floats()),
)
def test_whatever_it_is_told_it_stays_within_bounds(
    answers: list[tuple[float, float, float]], cut: bool, asked: tuple[float, float]
) -> None:
    """Means stay within -2 and 20, spreads within 0.01 and 3, and a dump can always be restored."""
    calibration = Calibration()
    for number, answer in enumerate(answers):
        calibration.learn(*answer, cut=cut and number % 2 == 0)
        if number % 5 == 0:
            calibration.watch(*np.array(answers[: number + 1]).T)
    for log_mean, log_sigma in (asked, (5.0, 0.6)):
        mean, sigma = calibration.calibrate(log_mean, log_sigma)
        assert -2.0 <= mean <= 20.0
        assert 0.01 <= sigma <= 3.0
    Calibration().restore(calibration.dump())
