"""Where an answer's length is expected: a linear model of L = ln(1 + tokens) on top of each tenant's running mean.

    mu = (S_k + kappa m) / (N_k + kappa) + w.x,   m = (S_g + 5 * 5.0) / (N_g + 5),   k = tenant and model
    S, N: sums of L - w.x and counts, decayed by .999 an answer (backfitting: the weights explain what the mean cannot)
    w += s * lr * g / sqrt(G),  g = clip(L - mu) x,  G <- .9999 G + g^2,  s: so that mu moves by at most .2 |L - mu|

AdaGrad (Duchi, Hazan, Singer 2011) because rare words need long steps where frequent ones need short ones. Its G is
decayed, or after a million answers a model that changed could not be learned any more; its step is bounded, or the
first answers, which touch only fresh rows, would be thrown across by hundreds of full steps at once.
"""

import numpy as np

from tidegate_estimator.arrays import Floats
from tidegate_estimator.features import ROW_BITS, Rows
from tidegate_estimator.keys import COUNT, SUM

PRIOR_LOG = 5.0  # ln(1 + 147 tokens)
_PRIOR_WEIGHT, _KEY_WEIGHT = 5.0, 1.0
_DECAY = 0.999
_NGRAM_SCALE = 4.0
_RATE, SQUARES_START, _SQUARES_DECAY = 0.05, 1.0, 0.9999
_ERROR_MAX, _MOVE_MAX = 1.5, 0.2


class MeanHead:
    """Weights, their sums of squared gradients, and the running mean of all."""

    def __init__(self) -> None:
        self.weights: Floats = np.zeros(2**ROW_BITS, np.float32)
        self.squares: Floats = np.full(2**ROW_BITS, SQUARES_START, np.float32)
        self.sum = 0.0
        self.count = 0.0

    def backoff(self, row: Floats) -> float:
        """The running mean of the key's row, drawn toward the one of all."""
        overall = (self.sum + _PRIOR_WEIGHT * PRIOR_LOG) / (self.count + _PRIOR_WEIGHT)
        return (float(row[SUM]) + _KEY_WEIGHT * overall) / (float(row[COUNT]) + _KEY_WEIGHT)

    def correction(self, rows: Rows) -> float:
        """w.x: what the features add to the running mean."""
        return float(self.weights.take(rows.rows).dot(rows.scales(_NGRAM_SCALE)))

    def learn(self, rows: Rows, row: Floats, length: float, correction: float) -> None:
        """Move weights and means toward one L; `correction` is what the features add to it now."""
        error = length - self.backoff(row) - correction
        self._step(rows, min(max(error, -_ERROR_MAX), _ERROR_MAX))
        target = length - correction
        row[SUM] = _DECAY * row[SUM] + target
        row[COUNT] = _DECAY * row[COUNT] + 1.0
        self.sum = _DECAY * self.sum + target
        self.count = _DECAY * self.count + 1.0

    def _step(self, rows: Rows, error: float) -> None:
        index, scales = rows.rows, rows.scales(_NGRAM_SCALE)
        gradient = error * scales
        squares = self.squares.take(index)
        squares *= _SQUARES_DECAY
        squares += gradient * gradient
        self.squares[index] = squares
        gradient /= np.sqrt(squares, out=squares)
        move, move_max = _RATE * abs(float(gradient.dot(scales))), _MOVE_MAX * abs(error)
        gradient *= _RATE * move_max / move if move > move_max else _RATE
        self.weights[index] += gradient
