"""The log-normal arithmetic of completion lengths, with mu and sigma of ln(tokens).

    E[min(Y, c)]    = exp(mu + s^2/2) Phi(z - s) + c (1 - Phi(z)),                     z = (ln c - mu) / s
    E[Y - g | Y > g] under the cap c = (E[min(Y, c)] - E[min(Y, g)]) / P(Y > g)
    far in the tail, where P(Y > g) vanishes, the mean excess tends to g s / z          (Mills' ratio)

Answer lengths of one tenant and model are close to log-normal: two samples of one prompt differ by a factor, not by a
sum.
"""

from math import erfc, exp, log, sqrt

LOG_TOKENS_MAX = 16.2  # ln of ten million tokens: longer than any answer
SIGMA_MIN, SIGMA_MAX = 0.1, 2.0  # of what is predicted
SIGMA_FORCED = 0.01  # of a length that the caller dictates
_SQRT2 = sqrt(2.0)
_FAR_Z = 6.0  # beyond it differences of tail integrals lose their digits


def survival(z: float) -> float:
    """P(Z > z) of a standard normal, with full relative precision in the upper tail."""
    return 0.5 * erfc(z / _SQRT2)


def mean_under(mu: float, sigma: float, cap_tokens: float) -> float:
    """E[min(Y, cap)]: what an answer costs on average when it is cut at the cap."""
    z = (log(cap_tokens) - mu) / sigma
    return exp(mu + sigma * sigma / 2.0) * survival(sigma - z) + cap_tokens * survival(z)


def mean_excess(mu: float, sigma: float, generated_tokens: float, cap_tokens: float) -> float:
    """Expected tokens still to come after `generated_tokens`, an answer's cut at the cap included; 0 at the cap."""
    if generated_tokens >= cap_tokens:
        return 0.0
    if generated_tokens < 1.0:
        return mean_under(mu, sigma, cap_tokens)
    z = (log(generated_tokens) - mu) / sigma
    if z > _FAR_Z:
        return min(generated_tokens * sigma / z, cap_tokens - generated_tokens)
    rest = mean_under(mu, sigma, cap_tokens) - mean_under(mu, sigma, generated_tokens)
    return min(max(rest / survival(z), 0.0), cap_tokens - generated_tokens)


def log_beyond(mu: float, sigma: float, log_bound: float, share: float) -> float:
    """The point of ln(Y) given ln(Y) > `log_bound` with `share` (0..1) of that tail below it.

    By bisection in z over the six sigmas above the bound; far in the tail the excess is exponential with rate z, so a
    step of sigma / z stands for it.
    """
    low = (log_bound - mu) / sigma
    if low > _FAR_Z:
        return log_bound + share * sigma / low
    target, high = (1.0 - share) * survival(low), max(low, 0.0) + 6.0
    for _ in range(30):
        middle = (low + high) / 2.0
        if survival(middle) > target:
            low = middle
        else:
            high = middle
    return mu + sigma * low
