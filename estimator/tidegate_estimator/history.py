"""What one tenant's answers from one model were like: the last few dozen lengths, and how the prompt's size moves them.

Lengths are held as ln(tokens) per sequence with the size correction taken out:
    value = ln(tokens) - correction[bucket],   correction[b] = S_b / (N_b + 8) drawn toward the wider history's own
so that the window's spread is what the prompt's size does not explain (backfitting). A bucket is one octave of prompt
tokens.
"""

from array import array
from bisect import bisect_left, insort
from math import floor, log

from msgspec import Struct

LEVELS = (0.5, 0.8, 0.9, 0.95)
BUCKETS = 16
CORRECTION_MAX = 3.0
_BUCKET_WEIGHT = 8.0  # answers that the wider history's correction is worth
_BUCKET_DECAY = 0.99
_RESIDUAL_MAX = 1.5
_GRID = 65536.0  # lengths are multiples of 1/65536, of which sums and sums of squares are exact and never drift


class Shape(Struct, frozen=True, gc=False):
    """Mean, variance and quantiles (at LEVELS) of ln(tokens) per sequence, and how many answers stand behind them."""

    mean: float
    variance: float
    quantiles: tuple[float, float, float, float]
    seen: int = 0

    def over(self, wider: "Shape", weight: float) -> "Shape":
        """This shape drawn toward a wider one that counts as `weight` answers: the moments of the mixture of both."""
        if not self.seen:
            return wider
        own = self.seen / (self.seen + weight)
        rest = 1.0 - own
        gap = self.mean - wider.mean
        a, b, c, d = self.quantiles
        e, f, g, h = wider.quantiles
        return Shape(
            own * self.mean + rest * wider.mean,
            own * self.variance + rest * wider.variance + own * rest * gap * gap,
            (own * a + rest * e, own * b + rest * f, own * c + rest * g, own * d + rest * h),
            self.seen,
        )


PRIOR_SIGMA = log(500 / 150) / 1.2816
PRIOR = Shape(
    log(150.0),
    PRIOR_SIGMA**2,
    (log(150.0), log(150.0) + 0.8416 * PRIOR_SIGMA, log(500.0), log(150.0) + 1.6449 * PRIOR_SIGMA),
)
"""Before anything is known: 150 tokens at p50, 500 at p90."""
_EMPTY = Shape(0.0, 0.0, (0.0, 0.0, 0.0, 0.0))


class History:
    """A bounded window of answers with its statistics kept ready: learning moves them, predicting only reads them."""

    __slots__ = (
        "_ordered",
        "_squares",
        "_total",
        "counts",
        "seen",
        "shape",
        "size",
        "sums",
        "values",
    )

    def __init__(self, size: int) -> None:
        self.size = size
        self.values = array("f")
        self._ordered = array("f")  # the same values by size
        self._total = self._squares = 0.0
        self.seen = 0
        self.sums = array("f", bytes(4 * BUCKETS))
        self.counts = array("f", bytes(4 * BUCKETS))
        self.shape = _EMPTY

    def correction(self, bucket: int, wider: float) -> float:
        """What the prompt's size adds to ln(tokens), drawn toward the wider history's correction."""
        return (self.sums[bucket] + _BUCKET_WEIGHT * wider) / (self.counts[bucket] + _BUCKET_WEIGHT)

    def add(self, value: float, *, counts: bool) -> None:
        """Take in one length: ln(tokens) without the correction.

        `counts` says whether it adds to the trust in this history; a length that is only a guess does not.
        """
        value = round(value * _GRID) / _GRID
        self.values.append(value)
        insort(self._ordered, value)
        self._total += value
        self._squares += value * value
        if len(self.values) > self.size:
            oldest = self.values.pop(0)
            del self._ordered[bisect_left(self._ordered, oldest)]
            self._total -= oldest
            self._squares -= oldest * oldest
        self.seen += counts
        self._shape_up()

    def correct(self, bucket: int, residual: float) -> None:
        """Take in how far a prompt of this size lay from its tenant's mean, in ln(tokens)."""
        self.sums[bucket] = _BUCKET_DECAY * self.sums[bucket] + min(max(residual, -_RESIDUAL_MAX), _RESIDUAL_MAX)
        self.counts[bucket] = _BUCKET_DECAY * self.counts[bucket] + 1.0

    def refresh(self) -> None:
        """Bring the statistics up to the window, from its values alone."""
        self._ordered = array("f", sorted(self.values))
        self._total = sum(self.values)
        self._squares = sum([value * value for value in self.values])
        self._shape_up()

    def _shape_up(self) -> None:
        count = len(self._ordered)
        if not count:
            self.shape = _EMPTY
            return
        mean = self._total / count
        variance = max(self._squares / count - mean * mean, 0.0)
        a, b, c, d = (_quantile(self._ordered, level) for level in LEVELS)
        self.shape = Shape(mean, variance, (a, b, c, d), self.seen)


def _quantile(ordered: "array[float]", level: float) -> float:
    """The quantile at `level * (n + 1)`, interpolated: unbiased in rank, so that 9 of 10 new answers stay below p90."""
    rank = min(max(level * (len(ordered) + 1) - 1.0, 0.0), len(ordered) - 1.0)
    low = floor(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (rank - low) * (ordered[high] - ordered[low])
