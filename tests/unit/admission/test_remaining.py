"""Tokens still to come: against the integral, in the tail, and for any float."""

from math import erfc, exp, inf, isfinite, log, nan, pi, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.admission.remaining import TOKENS_MAX, expected_tokens, log_mills, remaining_tokens


def remaining(log_mean: float, log_sigma: float, generated: float, cap: float = inf) -> float:
    columns = [np.array([value], dtype=np.float64) for value in (log_mean, log_sigma, generated, cap)]
    return float(remaining_tokens(*columns)[0])


def integral(log_mean: float, log_sigma: float, generated: float, cap: float) -> float:
    """E[min(X, cap) - g | X > g] = integral of P(X > x) / P(X > g) from g to the cap, by the trapezoid rule."""

    def beyond(x: float) -> float:
        return erfc((log(x) - log_mean) / log_sigma / sqrt(2.0)) / 2.0 if x > 0.0 else 1.0

    top = min(cap, exp(log_mean + 9.0 * log_sigma))
    x = generated + (top - generated) * np.linspace(0.0, 1.0, 20_001) ** 3  # denser where the tail is
    return float(np.trapezoid([beyond(value) for value in x], x)) / beyond(generated)


@pytest.mark.parametrize("log_sigma", [0.3, 0.6, 0.9, 1.5])
@pytest.mark.parametrize("z", [-30.0, -2.0, -0.5, 0.0, 1.0, 1.9])
@pytest.mark.parametrize("cap", [300.0, 3000.0, inf])
def test_it_is_the_conditional_expectation_under_the_cap(log_sigma: float, z: float, cap: float) -> None:
    """Up to two sigmas beyond its mean, an answer has left what the integral over its survival function says."""
    log_mean = 6.0
    generated = exp(log_mean + z * log_sigma)
    expected = max(integral(log_mean, log_sigma, generated, cap), 1.0) if generated < cap else 1.0
    assert remaining(log_mean, log_sigma, generated, cap) == pytest.approx(expected, rel=2e-3)


def test_before_the_first_token_it_is_the_mean() -> None:
    """Nothing generated and no cap: exp(m + s^2 / 2)."""
    assert remaining(5.0, 0.6, 0.0) == pytest.approx(exp(5.18), rel=1e-4)
    assert expected_tokens(5.0, 0.6, inf) == pytest.approx(exp(5.18))


@pytest.mark.parametrize("log_sigma", [0.01, 0.1, 0.3, 0.6, 1.2])
def test_what_remains_changes_little_from_token_to_token(log_sigma: float) -> None:
    """No jump anywhere, also where the spread begins to grow because the answer outlives its estimate."""
    generated = np.linspace(0.0, 5000.0, 50_001)
    ones = np.ones(generated.size)
    left = remaining_tokens(log(300.0) * ones, log_sigma * ones, generated, inf * ones)
    assert np.abs(np.diff(left)).max() < 0.25  # tokens, a tenth of a token further on


@pytest.mark.parametrize("log_sigma", [0.0, 0.1, 0.6])
def test_an_answer_far_beyond_its_estimate_has_at_least_a_twelfth_left(log_sigma: float) -> None:
    """What outlived its estimate by far is not about to end: what remains grows with what came."""
    for generated in (1e4, 1e5, 1e6):
        assert remaining(4.0, log_sigma, generated) >= generated / 12.0


def test_a_cap_bounds_it() -> None:
    """At most what the cap leaves, at least one token, also at the cap and beyond."""
    assert remaining(9.0, 0.5, 90.0, 100.0) == pytest.approx(10.0, abs=0.05)
    assert [remaining(9.0, 0.5, generated, 100.0) for generated in (99.5, 100.0, 1000.0)] == [1.0, 1.0, 1.0]


def test_no_rows() -> None:
    """An engine without requests gives an empty answer."""
    none = np.empty(0)
    assert remaining_tokens(none, none, none, none).shape == (0,)


def test_mills_ratio() -> None:
    """ln of Mills' ratio is within 1e-5 over the whole table."""
    for z in np.random.default_rng(0).uniform(-11.0, 12.0, 3000).tolist():
        exact = log(erfc(z / sqrt(2.0)) / 2.0) + z * z / 2.0 + log(2.0 * pi) / 2.0
        assert log_mills(np.array([z]))[0] == pytest.approx(exact, abs=1e-5)


@pytest.mark.parametrize(
    ("log_mean", "log_sigma", "cap", "tokens"),
    [
        (5.0, 0.0, 100.0, 100.0),
        (3.0, 0.0, 100.0, exp(3.0)),
        (-5.0, 0.1, inf, 1.0),
        (5.0, 0.5, 0.0, 1.0),
        (5.0, 0.5, -inf, 1.0),
        (50.0, 0.5, inf, exp(20.0)),
        (nan, 0.5, 70.0, 70.0),
        (nan, 0.5, inf, TOKENS_MAX),
    ],
)
def test_expected_tokens(log_mean: float, log_sigma: float, cap: float, tokens: float) -> None:
    """The mean or the cap, whichever is less, at least one token; an unknown length is never a short one."""
    assert expected_tokens(log_mean, log_sigma, cap) == pytest.approx(tokens)


@given(log_mean=st.floats(), log_sigma=st.floats(), generated=st.floats(), cap=st.floats())
def test_any_float_gives_a_finite_figure(log_mean: float, log_sigma: float, generated: float, cap: float) -> None:
    """From 1 to a billion, and no more than the cap leaves."""
    left = remaining(log_mean, log_sigma, generated, cap)
    assert 1.0 <= left <= TOKENS_MAX
    if cap > 1.0 and isfinite(generated) and generated >= 0.0:
        assert left <= max(cap - generated, 1.0)
    assert 1.0 <= expected_tokens(log_mean, log_sigma, cap) <= TOKENS_MAX


@given(
    log_mean=st.floats(0.0, 10.0),
    log_sigma=st.floats(0.05, 2.0),
    generated=st.floats(0.0, 1e5),
    cap=st.floats(1.0, 1e6),
    more=st.floats(1.0, 10.0),
)
def test_it_is_monotone_in_the_cap(
    log_mean: float, log_sigma: float, generated: float, cap: float, more: float
) -> None:
    """A higher cap never leaves less, up to the table's accuracy."""
    low, high = (remaining(log_mean, log_sigma, generated, limit) for limit in (cap, cap * more))
    assert high >= low * (1.0 - 1e-3) - 0.1
