"""How a feature becomes a number: sums of products in 64 bits, then a finaliser.

    sum = kind * K + a * L + b * R  (mod 2**64),   mixed = f(f(sum) * F),   f(x) = x ^ (x >> 32)

K, L, R and F are odd. A sum of one feature can be put together in parts: what never changes for a tenant once, the rest
at each request.
"""

import numpy as np

from tidegate_estimator.arrays import Wide

KIND, LEFT, RIGHT = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
FINAL = 0xD6E8FEB86659FD93
WORD_MASK = 2**64 - 1
_RIGHT_OVER_LEFT = RIGHT * pow(LEFT, -1, WORD_MASK + 1) & WORD_MASK
# Arrays without dimensions: numpy takes them as they are, where it would look a scalar's type up first (.2 us each).
_HALF, _FACTOR = np.array(32, np.uint64), np.array(FINAL, np.uint64)


def paired(a: int, b: int) -> int:
    """One number that stands for two: paired(a, b) * L = a * L + b * R."""
    return (a + b * _RIGHT_OVER_LEFT) & WORD_MASK


def mix(x: Wide) -> Wide:
    """A 64-bit finaliser: every bit of the sum reaches the upper ones that are kept. Changes `x` itself."""
    x ^= x >> _HALF
    x *= _FACTOR
    x ^= x >> _HALF
    return x
