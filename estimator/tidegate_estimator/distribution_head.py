"""How likely each length is: a softmax over 32 buckets of L = ln(1 + tokens) on [0, 10.4], linear in the features.

    p = softmax(b + W x),   W -= .06 x (p - label) / sqrt(G),   label: a Gaussian of .2 around L
    cut above y: label = p restricted to lengths above y         (expectation-maximisation)

b is the constant prior (150 tokens at p50, 500 at p90) until something has been learned. Unlike a mean with residuals
it can have two humps: a tool call or an essay, from the same tenant.
"""

from math import log1p

import numpy as np

from tidegate_estimator.arrays import Doubles, Floats, Indices
from tidegate_estimator.features import ROW_BITS, Rows
from tidegate_estimator.history import PRIOR_SIGMA

BUCKETS = 32
LOG_MAX = 10.4
ROWS = 2**15
_WIDTH = LOG_MAX / BUCKETS
_NGRAM_SCALE = 5.0
_RATE, _SQUARES_START, _SQUARES_DECAY = 0.06, 0.01, 0.9999
_KERNEL = 0.2
_ROW_SHIFT = ROW_BITS - 15
_ROW = np.dtype(f"V{4 * BUCKETS}")  # a row as one item: numpy scatters items in half the time that it takes over rows

_EDGES: Doubles = np.linspace(0.0, LOG_MAX, BUCKETS + 1)
_CENTRES: Doubles = (_EDGES[:-1] + _EDGES[1:]) / 2
_ONES: Doubles = np.ones(BUCKETS)
_BIAS: Floats = (-0.5 * ((_CENTRES - log1p(150.0)) / PRIOR_SIGMA) ** 2).astype(np.float32).clip(-8.0)


class DistributionHead:
    """Weights of 32 buckets for each of 32,768 rows, with their sums of squared gradients."""

    def __init__(self) -> None:
        self.weights: Floats = np.zeros((ROWS, BUCKETS), np.float32)
        self.squares: Floats = np.full((ROWS, BUCKETS), _SQUARES_START, np.float32)

    def predict(self, rows: Rows) -> Doubles:
        """Probability of each bucket."""
        scales = rows.scales(_NGRAM_SCALE)
        logits = scales.dot(self.weights.take(_places(rows), axis=0))
        logits += _BIAS
        logits -= logits[logits.argmax()]
        chances = logits.astype(np.float64)
        return _normalised(np.exp(chances, out=chances))

    def learn(self, rows: Rows, length: float, chances: Doubles) -> None:
        """Take in one L; `chances` are what is predicted for it now."""
        self._step(rows, chances - _normalised(_kernel(min(length, LOG_MAX))))

    def learn_beyond(self, rows: Rows, bound: float, chances: Doubles) -> None:
        """Take in an L known only to lie above `bound`."""
        self._step(rows, chances - beyond(chances, min(bound, LOG_MAX - _WIDTH)))

    def _step(self, rows: Rows, error: Doubles) -> None:
        places, scales = _places(rows), rows.scales(_NGRAM_SCALE)
        # All of it in place and over whole arrays, the outer product by BLAS: broadcasting costs more than arithmetic.
        gradient = scales[:, None].dot(error.astype(np.float32)[None, :])
        squares = self.squares.take(places, axis=0)
        squares *= _SQUARES_DECAY
        squares += gradient * gradient
        _put(self.squares, places, squares)
        gradient *= _RATE
        gradient /= np.sqrt(squares, out=squares)
        _put(self.weights, places, np.subtract(self.weights.take(places, axis=0), gradient, out=gradient))


def quantiles(chances: Doubles, levels: Doubles) -> list[float]:
    """L at the levels, interpolated within buckets."""
    cumulated = np.zeros(BUCKETS + 1)
    np.add.accumulate(chances, out=cumulated[1:])
    found: list[float] = np.interp(levels, cumulated, _EDGES).tolist()
    return found


def beyond(chances: Doubles, bound: float) -> Doubles:
    """The distribution of L given L > `bound`, the bucket of the bound counted by its part above it."""
    kept = chances * np.clip((_EDGES[1:] - bound) / _WIDTH, 0.0, 1.0)
    if kept.sum() < 1e-6:  # nothing was expected there: the next bucket
        kept = _kernel(bound + _WIDTH)
    return _normalised(kept)


def _kernel(centre: float) -> Doubles:
    """A Gaussian over the buckets; its sum is arbitrary."""
    label: Doubles = _CENTRES - centre
    label *= label
    label *= -0.5 / _KERNEL**2
    return np.exp(label, out=label)


def _normalised(parts: Doubles) -> Doubles:
    """`parts` divided by their sum, in place."""
    parts /= parts.dot(_ONES)  # a third of the time of their sum()
    return parts


def _places(rows: Rows) -> Indices:
    return rows.rows >> _ROW_SHIFT


def _put(table: Floats, places: Indices, values: Floats) -> None:
    """table[places] = values."""
    table.view(_ROW)[:, 0][places] = values.view(_ROW)[:, 0]
