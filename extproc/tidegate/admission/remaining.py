"""How many completion tokens answers still have to come, all at once.

With X log-normal (m, s), g tokens generated, a cap c, z = (ln g - m) / s and y = (ln c - m) / s:

    remaining = E[min(X, c) - g | X > g] = g (R(z - s) / R(z) - 1) - c phi(y) / phi(z) (R(y - s) - R(y)) / R(z)

R(z) = Q(z) / phi(z) is Mills' ratio. It is the same as exp(m + s^2 / 2) Q(z - s) / Q(z) - g, because
exp(m + s^2 / 2) phi(z - s) = g phi(z), but nothing in it underflows: ln R is smooth, falls from z^2 / 2 on the left to
-ln z on the right, and is read from a table. The expectation under the cap costs two more readings than
min(c, E[X | X > g]) - g, which is never below it: by a half where the cap lies at the mean and s is 0.9.

An answer far beyond its estimate shows that the estimate was wrong, not that the end is near. So s grows, up to 0.5, as
far as it must to keep z at 2, and beyond z = 6 the answer is taken for one whose estimate had put it there (m moves up
to ln g - 6 s): what remains then grows in proportion to what came, at least 8 % of it. A floor of 0.5 for all z > 2
would double what remains of a well-known answer from one token to the next.
"""

from math import erfc, exp, inf, isnan, log, pi, sqrt

import numpy as np

from tidegate.admission.arrays import Floats

TOKENS_MAX = 1e9
"""No answer is longer, whatever an estimate or a caller says."""

_LOG_MEAN_MIN, _LOG_MEAN_MAX = -2.0, 20.0
_SIGMA_MIN, _SIGMA_MAX = 0.01, 3.0
_SIGMA_TAIL, _Z_TAIL, _Z_MAX = 0.5, 2.0, 6.0
_Z_MIN = -8.0  # whatever lies below it has hardly begun
_Y_MAX = 12.0  # a cap beyond it cuts nothing
_GENERATED_MIN = 1e-6
_PER_UNIT = 128.0
_TABLE_MIN, _TABLE_MAX = _Z_MIN - _SIGMA_MAX, _Y_MAX


def _log_mills(z: float) -> float:
    return log(erfc(z / sqrt(2.0)) / 2.0) + z * z / 2.0 + log(2.0 * pi) / 2.0


_TABLE = np.array(
    [_log_mills(_TABLE_MIN + i / _PER_UNIT) for i in range(int((_TABLE_MAX - _TABLE_MIN) * _PER_UNIT) + 2)]
)
_SLOPE = np.append(np.diff(_TABLE), 0.0)


def log_mills(z: Floats) -> Floats:
    """ln of Mills' ratio within 1e-5, for z from -11 to 12; beyond, its value at the end."""
    place = (np.clip(z, _TABLE_MIN, _TABLE_MAX) - _TABLE_MIN) * _PER_UNIT
    index = place.astype(np.int64)
    value: Floats = _TABLE[index] + (place - index) * _SLOPE[index]
    return value


def remaining_tokens(log_mean: Floats, log_sigma: Floats, generated: Floats, cap: Floats) -> Floats:
    """Tokens expected to come, at least 1 and at most what the cap leaves, at least 1.

    All are float64 of one length; `cap` is inf where there is none. Any float gives a finite figure: NaN stands for a
    length, spread or cap as large as can be, and for nothing generated.
    """
    came = np.minimum(np.fmax(generated, 0.0), TOKENS_MAX)
    cap = np.maximum(np.fmin(cap, TOKENS_MAX), 0.0)
    mean, sigma, z = _tail(log_mean, log_sigma, np.log(np.maximum(came, _GENERATED_MIN)))
    y = np.minimum((np.log(np.maximum(cap, _GENERATED_MIN)) - mean) / sigma, _Y_MAX)

    mills = log_mills(np.concatenate((z, z - sigma, y, y - sigma))).reshape(4, len(z))
    beyond = np.exp(mean + sigma * z + mills[1] - mills[0])  # E[X | X > g]
    at_cap = mean + sigma * y + (z * z - y * y) / 2.0 - mills[0]
    beyond -= np.exp(at_cap + mills[3]) - np.exp(at_cap + mills[2])
    left: Floats = np.maximum(np.minimum(beyond, cap) - came, 1.0)
    return left


def expected_tokens(log_mean: float, log_sigma: float, cap: float) -> float:
    """Tokens of an answer that has not begun: min(cap, exp(m + s^2 / 2)), at least 1; `cap` is inf where there is none.

    What an admission is priced at. It is above the expectation under the cap, which costs an answer that may be cut
    less; the books turn to that one with the first token.
    """
    log_tokens = log_mean + log_sigma * log_sigma / 2.0
    tokens = exp(min(max(log_tokens, 0.0), _LOG_MEAN_MAX)) if not isnan(log_tokens) else inf
    return max(min(tokens, cap, TOKENS_MAX), 1.0)


def _tail(log_mean: Floats, log_sigma: Floats, log_came: Floats) -> tuple[Floats, Floats, Floats]:
    """m, s and z of the log-normals that stand for answers which have come so far."""
    mean = np.maximum(np.fmin(log_mean, _LOG_MEAN_MAX), _LOG_MEAN_MIN)
    sigma = np.maximum(np.fmin(log_sigma, _SIGMA_MAX), _SIGMA_MIN)
    sigma = np.maximum(sigma, np.minimum((log_came - mean) / _Z_TAIL, _SIGMA_TAIL))
    mean = np.maximum(mean, log_came - _Z_MAX * sigma)
    return mean, sigma, np.maximum((log_came - mean) / sigma, _Z_MIN)
