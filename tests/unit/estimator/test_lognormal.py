"""The log-normal arithmetic against plain numerical integration."""

from math import exp, log

import numpy as np
import numpy.typing as npt
import pytest

from tidegate_estimator.lognormal import log_beyond, mean_excess, mean_under

Lengths = npt.NDArray[np.float64]

CASES = [(5.0, 0.9), (3.9, 0.2), (7.0, 1.5), (1.0, 2.0)]


def samples(mu: float, sigma: float) -> tuple[Lengths, Lengths]:
    """Lengths at 400,000 even steps of the distribution, and their weights."""
    z = np.linspace(-8.0, 8.0, 400_001)
    weights = np.exp(-z * z / 2.0)
    return np.exp(mu + sigma * z), weights / weights.sum()


@pytest.mark.parametrize(("mu", "sigma"), CASES)
@pytest.mark.parametrize("cap", [1.0, 20.0, 300.0, 1e6])
def test_the_mean_under_a_cap(mu: float, sigma: float, cap: float) -> None:
    """E[min(Y, cap)] is what integration gives."""
    y, weight = samples(mu, sigma)
    assert mean_under(mu, sigma, cap) == pytest.approx(float((np.minimum(y, cap) * weight).sum()), rel=1e-3)


@pytest.mark.parametrize(("mu", "sigma"), CASES)
@pytest.mark.parametrize("z", [-2.0, 0.0, 2.0, 5.0])
def test_the_mean_excess(mu: float, sigma: float, z: float) -> None:
    """E[min(Y, cap) - g | Y > g] is what integration gives."""
    generated, cap = max(exp(mu + sigma * z), 1.0), 1e9
    y, weight = samples(mu, sigma)
    beyond = y > generated
    truth = float(((np.minimum(y, cap) - generated) * weight)[beyond].sum() / weight[beyond].sum())
    assert mean_excess(mu, sigma, generated, cap) == pytest.approx(truth, rel=0.01)


def test_the_mean_excess_has_no_break_far_out() -> None:
    """Where the tail takes over from the integral, the excess goes on smoothly and stays finite."""
    inside, outside = (mean_excess(5.0, 0.9, exp(5.0 + 0.9 * z), 1e9) for z in (5.99, 6.01))
    assert outside == pytest.approx(inside, rel=0.35)
    assert 0 < mean_excess(3.0, 0.01, 1e8, 1e9) < 1e8


@pytest.mark.parametrize("bound_z", [-5.0, 0.0, 3.0, 5.9, 8.0, 60.0])
def test_points_beyond_a_bound(bound_z: float) -> None:
    """They lie beyond the bound, in order of their share of the tail."""
    mu, sigma = 5.0, 0.9
    bound = mu + sigma * bound_z
    points = [log_beyond(mu, sigma, bound, share) for share in (0.0, 0.25, 0.5, 0.75, 0.999)]
    assert points == sorted(points)
    assert points[0] >= bound - 1e-6
    assert points[-1] <= max(bound, mu) + 6.0 * sigma


def test_the_middle_of_an_uncut_distribution_is_its_median() -> None:
    """With a bound far below, half of the tail is half of the distribution."""
    assert log_beyond(log(100.0), 0.5, -10.0, 0.5) == pytest.approx(log(100.0), abs=1e-5)
