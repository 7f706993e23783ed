"""Keeps a promise: nine answers of ten stay below p90, for every tenant and model.

    ln p90 += theta_g + theta_k,   theta_g += .01 (miss - .1),  theta_k += .02 (miss - .1),  |theta| <= 1.5

Online conformal prediction (Gibbs and Candes 2021): whatever the model gets wrong, the share of misses goes to a tenth.
"""

from tidegate_estimator.arrays import Floats
from tidegate_estimator.keys import THETA

_MISS = 0.1
_RATE_ALL, _RATE_KEY, _THETA_MAX = 0.01, 0.02, 1.5


class Calibration:
    """The theta of all; a key's own lies in its row."""

    def __init__(self) -> None:
        self.theta = 0.0

    def shift(self, row: Floats) -> float:
        """What to add to ln(p90)."""
        return self.theta + float(row[THETA])

    def learn(self, row: Floats, *, missed: bool) -> None:
        """Whether an answer that nothing could cut was longer than its p90."""
        gap = missed - _MISS
        self.theta = _bounded(self.theta + _RATE_ALL * gap)
        row[THETA] = _bounded(float(row[THETA]) + _RATE_KEY * gap)


def _bounded(theta: float) -> float:
    return min(max(theta, -_THETA_MAX), _THETA_MAX)
