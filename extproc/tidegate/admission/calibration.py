"""What estimated lengths are worth here: their bias and their spread, from the answers that came.

    r = ln(actual / predicted),   bucket k = floor(2 log2 predicted): half an octave of the raw prediction
    level    L0 = mean(r), held to 0 with weight 2;   L = L0 + sum of s / R(z) over running answers / (answers + 2)
    bucket   d_k = mean(r - L0) in it, held with weight 8 to its neighbours' a_k = sum w_j d_j / (8 + sum w_j),
             w_j = n_j / 2^|j - k| for 0 < |j - k| <= 2
    spread   v_k = mean(((r - L - d_k) / s_raw)^2) in it, held with weight 8 to that of all, held to 1 with weight 8

    calibrated   m = m_raw + L + d_k,   s = s_raw sqrt(v_k)

All means forget: their weight n stops at 200; r counts as at most 3 s off (s at least 0.5). A bias that all answers
share is known from the level after a dozen of them, and a change of it after some hundred, whichever buckets they fall
in; what differs from bucket to bucket (large predictions are too large: they regress to the mean) comes on top. The
spread is measured in units of the estimate's own, so that an estimate that is sure stays surer than one that is not.

Answers that end first are short. While the process is young, those that ended are a biased sample of those that were
sent: where an answer takes half a minute, the first thirty are a fifth too short, and a cache filled on their word
overflows. So answers that still run speak too. One that has come to g tokens says that X > g, and in the likelihood of
a censored normal that is worth s / R(z), z = (ln g - m) / s, R Mills' ratio: next to nothing while it is young, more
the longer it outlives its estimate. Nothing of it is kept; when it ends, its length takes its place. In a steady stream
what ends is a fair sample, and indeed that sum stays what it is while the number of answers grows. An answer that was
cut, by its cap or by a client that left, is censored for good: its s / R(z) is added to the sums.
"""

from collections.abc import Mapping
from math import exp, inf, isfinite, log, sqrt

import numpy as np

from tidegate.admission.arrays import Floats, saved_array
from tidegate.admission.remaining import log_mills

BUCKETS = 41
_PER_LOG = 2.0 / log(2.0)  # half octaves
_MEMORY = 200.0
_LEVEL_PRIOR, _PRIOR = 2.0, 8.0
_NEIGHBOURS = ((1, 0.5), (2, 0.25))
_REACHES = 2
_RESIDUAL_MAX = 4.0
_REACH, _REACH_SIGMA_MIN = 3.0, 0.5  # one answer further off than so many sigmas says no more than that
_DEVIATION_MAX = 4.0  # in units of the estimate's own spread
_ROUNDS = 3
_Z_MAX = 3.0  # one answer that never ends says no more than that
_LOG_MEAN_MIN, _LOG_MEAN_MAX = -2.0, 20.0
_SIGMA_UNIT_MIN = 0.05
_SIGMA_MIN, _SIGMA_MAX = 0.01, 3.0
_ANSWERS_MAX = 1e12
_MEAN_MAX = 16.0


class _Mean:
    """A sum and its weight; the weight stops at 200, and the sum forgets accordingly."""

    __slots__ = ("sum", "weight")

    def __init__(self, total: float = 0.0, weight: float = 0.0) -> None:
        self.sum = total
        self.weight = weight

    def add(self, value: float) -> None:
        if self.weight > _MEMORY - 1.0:
            self.sum *= (_MEMORY - 1.0) / self.weight
            self.weight = _MEMORY - 1.0
        self.sum += value
        self.weight += 1.0

    def add_censored(self, value: float) -> None:
        """Add to the sum alone: an answer that was cut says in which direction, but not how far."""
        self.sum = min(self.sum + value, _MEAN_MAX * (self.weight + _PRIOR))

    def towards(self, prior: float, weight: float) -> float:
        """The mean, held to `prior` with `weight`."""
        return (self.sum + weight * prior) / (self.weight + weight)


class Calibration:
    """The table of one pool.

    Attributes:
        answers: complete answers learned since the start.
    """

    __slots__ = ("_level", "_outliving", "_shift_by_bucket", "_shifts", "_spread", "_spread_by_bucket", "answers")

    def __init__(self) -> None:
        self.answers = 0.0
        self._level = _Mean()
        self._spread = _Mean()
        self._shift_by_bucket = [_Mean() for _ in range(BUCKETS)]
        self._spread_by_bucket = [_Mean() for _ in range(BUCKETS)]
        self._outliving = 0.0  # sum of s / R(z) over the answers that run
        self._shifts: list[float | None] = [None] * BUCKETS  # as last worked out; None where answers have come since

    @property
    def level(self) -> float:
        """ln of how much longer answers are than predicted, over all buckets."""
        return self._level.towards(0.0, _LEVEL_PRIOR) + self._outliving / (self.answers + _LEVEL_PRIOR)

    def calibrate(self, log_mean: float, log_sigma: float) -> tuple[float, float]:
        """Mean and spread of ln(length) to believe where an estimate says these."""
        log_mean, log_sigma = _bounded(log_mean, log_sigma)
        bucket = _bucket(log_mean)
        mean = log_mean + self.level + self._shift(bucket)
        sigma = max(log_sigma, _SIGMA_UNIT_MIN) * sqrt(self._variance(bucket))
        return min(max(mean, _LOG_MEAN_MIN), _LOG_MEAN_MAX), min(max(sigma, _SIGMA_MIN), _SIGMA_MAX)

    def learn(self, log_mean: float, log_sigma: float, tokens: float, *, cut: bool = False) -> bool:
        """Take in an answer of `tokens` and what the estimate had said of it, before calibration.

        `cut`: it would have gone on, but its cap or its client ended it. False where there is nothing to learn.
        """
        if not (isfinite(log_mean) and isfinite(log_sigma) and 1.0 <= tokens < inf):
            return False
        log_mean, log_sigma = _bounded(log_mean, log_sigma)
        bucket = _bucket(log_mean)
        residual = min(max(log(tokens) - log_mean, -_RESIDUAL_MAX), _RESIDUAL_MAX)
        sigma = self.calibrate(log_mean, log_sigma)[1]
        if cut:
            self._learn_cut(bucket, residual, sigma)
        else:
            known, reach = self.level + self._shift(bucket), _REACH * max(sigma, _REACH_SIGMA_MIN)
            residual = min(max(residual, known - reach), known + reach)
            self._learn_complete(bucket, residual, max(log_sigma, _SIGMA_UNIT_MIN))
        return True

    def watch(self, log_mean: Floats, log_sigma: Floats, generated: Floats) -> None:
        """Tell of all answers that run now, once a second or so: estimates before calibration, and tokens that came."""
        mean = np.maximum(np.fmin(log_mean, _LOG_MEAN_MAX), _LOG_MEAN_MIN)
        sigma = np.maximum(np.fmin(log_sigma, _SIGMA_MAX), _SIGMA_UNIT_MIN)
        bucket = np.clip(mean * _PER_LOG, 0.0, BUCKETS - 1.0).astype(np.int64)
        table = np.array([(self._shift(k), sqrt(self._variance(k))) for k in range(BUCKETS)])
        sigma = sigma * table[bucket, 1]
        beyond = np.log(np.fmax(generated, 1.0)) - mean - table[bucket, 0]
        for _ in range(_ROUNDS):
            z = np.minimum((beyond - self.level) / sigma, _Z_MAX)
            hazard = np.exp(-log_mills(z))
            # The level depends on the sum and the sum on the level: by Newton's steps, or it would swing.
            slope = float((hazard * (hazard - z)).sum()) / (self.answers + _LEVEL_PRIOR)
            outliving = self._outliving + (float((sigma * hazard).sum()) - self._outliving) / (1.0 + slope)
            self._outliving = min(max(outliving, 0.0), _RESIDUAL_MAX * (self.answers + _LEVEL_PRIOR))

    def dump(self) -> dict[str, object]:
        """What `restore` takes, in plain numbers; the running answers are not part of it."""
        means = [self._level, self._spread, *self._shift_by_bucket, *self._spread_by_bucket]
        return {"answers": self.answers, "sums": [m.sum for m in means], "weights": [m.weight for m in means]}

    def restore(self, record: Mapping[str, object]) -> None:
        """Take over what `dump` gave; ValueError, and no change, where it is damaged."""
        answers = float(saved_array(record, "answers", ()))
        means = (2 + 2 * BUCKETS,)
        sums, weights = saved_array(record, "sums", means), saved_array(record, "weights", means)
        spreads = np.append(sums[1], sums[2 + BUCKETS :])
        if not 0.0 <= answers <= _ANSWERS_MAX or weights.min() < 0.0 or weights.max() > _MEMORY:
            raise ValueError("answers, weights: out of range")
        if (np.abs(sums) > _MEAN_MAX * (weights + _PRIOR)).any() or spreads.min() < 0.0:
            raise ValueError("sums: out of range")
        restored = [_Mean(value, weight) for value, weight in zip(sums.tolist(), weights.tolist(), strict=True)]
        self.answers, self._outliving = answers, 0.0
        self._level, self._spread = restored[:2]
        self._shift_by_bucket, self._spread_by_bucket = restored[2 : 2 + BUCKETS], restored[2 + BUCKETS :]
        self._shifts = [None] * BUCKETS

    def _shift(self, bucket: int) -> float:
        """What to add to the level in this bucket."""
        known = self._shifts[bucket]
        if known is not None:
            return known
        around = _Mean()
        for distance, share in _NEIGHBOURS:
            for place in (bucket - distance, bucket + distance):
                if 0 <= place < BUCKETS:
                    around.sum += share * self._shift_by_bucket[place].sum
                    around.weight += share * self._shift_by_bucket[place].weight
        shift = self._shifts[bucket] = self._shift_by_bucket[bucket].towards(around.towards(0.0, _PRIOR), _PRIOR)
        return shift

    def _forget_shifts(self, bucket: int) -> None:
        """An answer came in this bucket: it and its neighbours are to be worked out anew."""
        for place in range(max(bucket - _REACHES, 0), min(bucket + _REACHES + 1, BUCKETS)):
            self._shifts[place] = None

    def _variance(self, bucket: int) -> float:
        """Of the residuals of this bucket, in units of what their estimates said."""
        return self._spread_by_bucket[bucket].towards(self._spread.towards(1.0, _PRIOR), _PRIOR)

    def _learn_complete(self, bucket: int, residual: float, sigma: float) -> None:
        before = residual - self.level - self._shift(bucket)
        self.answers = min(self.answers + 1.0, _ANSWERS_MAX)
        self._level.add(residual)
        self._shift_by_bucket[bucket].add(residual - self._level.towards(0.0, _LEVEL_PRIOR))
        self._forget_shifts(bucket)
        after = residual - self.level - self._shift(bucket)
        # The product of the two, as in Welford's algorithm: neither what is learned nor the learning counts as spread.
        variance = min(max(before * after, 0.0) / sigma**2, _DEVIATION_MAX**2)
        self._spread.add(variance)
        self._spread_by_bucket[bucket].add(variance)

    def _learn_cut(self, bucket: int, residual: float, sigma: float) -> None:
        z = (residual - self.level - self._shift(bucket)) / sigma
        outlived = sigma * exp(-float(log_mills(np.array([min(z, _Z_MAX)]))[0]))
        self._level.add_censored(outlived)
        self._shift_by_bucket[bucket].add_censored(outlived)
        self._forget_shifts(bucket)


def _bounded(log_mean: float, log_sigma: float) -> tuple[float, float]:
    """The same, within bounds; NaN is as large as can be."""
    mean = min(_LOG_MEAN_MAX, log_mean)  # in this order NaN gives the bound
    sigma = min(_SIGMA_MAX, log_sigma)
    return max(mean, _LOG_MEAN_MIN), max(sigma, _SIGMA_MIN)


def _bucket(log_mean: float) -> int:
    return min(max(int(log_mean * _PER_LOG), 0), BUCKETS - 1)
