"""How far lengths lie from their expected value: histograms of r = L - mu, of each tenant and model and of all.

    share[bin] = (H_k + 60 h_g) / (N_k + 60),   h_g = (H_g + 20 normal(0, .8)) / (N_g + 20),   decay .995 an answer

64 bins on [-3.2, 3.2]. Residuals are taken before the answer is learned: those of training are too small (their p90
covers four answers in five).
"""

import numpy as np

from tidegate_estimator.arrays import Doubles, Floats
from tidegate_estimator.keys import BINS, HISTOGRAM

LIMIT = 3.2
_STEP = 2 * LIMIT / BINS
_DECAY = 0.995
_PRIOR_SIGMA, _PRIOR_WEIGHT, _WIDER_WEIGHT = 0.8, 20.0, 60.0
_SURPRISE, _SURPRISE_STEP = 0.02, 0.25
_EDGES: Doubles = np.linspace(-LIMIT, LIMIT, BINS + 1)
_CENTRES: Doubles = (_EDGES[:-1] + _EDGES[1:]) / 2
_ONES: Doubles = np.ones(BINS)
_PRIOR: Doubles = np.exp(-0.5 * (_CENTRES / _PRIOR_SIGMA) ** 2)
_PRIOR *= _PRIOR_WEIGHT / _PRIOR.sum()


class Residuals:
    """The histogram of all; a key's own lies in its row."""

    def __init__(self) -> None:
        self.bins: Doubles = np.zeros(BINS)

    def shares(self, row: Floats) -> Doubles:
        """The mixed histogram of a key; its sum is arbitrary."""
        wide = self.bins + _PRIOR
        wide *= _WIDER_WEIGHT / wide.dot(_ONES)  # a third of the time of their sum()
        wide += row[HISTOGRAM]
        return wide

    def quantiles(self, row: Floats, levels: Doubles) -> list[float]:
        """Residuals at the levels, interpolated within bins."""
        cumulated = np.zeros(BINS + 1)
        np.add.accumulate(self.shares(row), out=cumulated[1:])
        found: list[float] = np.interp(levels * cumulated[-1], cumulated, _EDGES).tolist()
        return found

    def learn(self, row: Floats, residual: float) -> None:
        """Take in one residual."""
        self._fade(row)
        place = min(max(int((residual + LIMIT) / _STEP), 0), BINS - 1)
        row[HISTOGRAM.start + place] += 1.0
        self.bins[place] += 1.0

    def learn_beyond(self, row: Floats, bound: float) -> float:
        """Take in a residual known only to lie above `bound`: its mass is spread as the tail is; returns its mean.

        Where hardly anything was expected above the bound, it is the mean that is wrong: nothing is learned here.
        """
        tail = self.shares(row)
        everything = float(tail.sum())
        tail *= np.clip((_EDGES[1:] - bound) / _STEP, 0.0, 1.0)
        mass = float(tail.sum())
        if mass < _SURPRISE * everything:
            return bound + _SURPRISE_STEP
        tail /= mass
        self._fade(row)
        row[HISTOGRAM] += tail
        self.bins += tail
        return max(float(tail @ _CENTRES), bound)

    def _fade(self, row: Floats) -> None:
        own = row[HISTOGRAM]
        own *= _DECAY  # a view: row[HISTOGRAM] *= _DECAY would copy the result onto itself
        self.bins *= _DECAY
