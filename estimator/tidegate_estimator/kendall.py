"""Kendall's rank correlation, tau-b, exact and in O(n log n).

    tau_b = (C - D) / sqrt((N - X) (N - Y)),   N = n (n - 1) / 2 pairs,   C + D = N - X - Y + XY

C and D are the pairs that both sides order alike and unlike, X, Y and XY those tied on one side, the other and both.
D is the number of inversions of y once the pairs are sorted by (x, y) (Knight 1966). Knight counts them by merge sort;
here they are counted bit by bit of y's ranks, highest first, as a radix sort would move them, which needs no loop over
elements: two elements are in the wrong order exactly where their ranks agree above some bit, the earlier one has the
bit and the later one does not.
"""

from math import sqrt

import numpy as np
import numpy.typing as npt

from tidegate_estimator.arrays import Doubles, Indices


def kendall_tau(x: Doubles, y: Doubles) -> float:
    """tau-b of two equally long vectors, from -1 to 1; 0 where one of them is constant."""
    n = len(x)
    pairs = n * (n - 1) // 2
    x_ranks, y_ranks = _ranks(x), _ranks(y)
    x_ties, y_ties = _ties(x_ranks), _ties(y_ranks)
    if pairs in (x_ties, y_ties):
        return 0.0
    both = _ties(_ranks(x_ranks * np.int64(n) + y_ranks))
    discordant = _inversions(y_ranks[np.lexsort((y_ranks, x_ranks))])
    concordant = pairs - x_ties - y_ties + both - discordant
    return (concordant - discordant) / (sqrt(pairs - x_ties) * sqrt(pairs - y_ties))


def _ranks(values: npt.NDArray[np.float64] | Indices) -> Indices:
    """From 0, equal values sharing one."""
    ranks: Indices = np.unique(values, return_inverse=True)[1].astype(np.int64)
    return ranks


def _ties(ranks: Indices) -> int:
    """Pairs of equal ranks."""
    counts = np.bincount(ranks)
    return int((counts * (counts - 1) // 2).sum())


def _inversions(ranks: Indices) -> int:
    """Pairs in which the earlier rank is the higher one."""
    found = 0
    for bit in reversed(range(int(ranks.max()).bit_length())):
        prefix = ranks >> (bit + 1)
        order = np.argsort(prefix, kind="stable")  # within a group the first order is kept
        group = prefix[order]
        ones = (ranks[order] >> bit) & 1
        before = np.cumsum(ones) - ones
        starts = np.searchsorted(group, group, side="left")
        found += int(((before - before[starts]) * (1 - ones)).sum())
    return found
