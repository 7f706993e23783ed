"""Four coefficients, as multiples u of a prior, from sums of weighted rows.

    u = argmin  sum v (a u - y)^2 + 0.04 |u / L - 1|^2,   1/8 <= u <= 8
    L = argmin  sum v (L sum(a) - y)^2 + 0.02 (L - 1)^2,   1/8 <= L <= 8

L is the one factor that fits all columns best. The ridge keeps what the rows cannot tell apart (columns that move
together, one that was never seen) at the prior times L: a slower engine is, to begin with, slower in everything. A
ridge around the prior itself held an engine five times slower back for a hundred rows, each of which weighs 1/25 there.

A coefficient that leaves its bounds is put on the bound and the others are solved again, or they would carry its part.
"""

import numpy as np

from tidegate.admission.arrays import Floats

BOUND = 8.0
_RIDGE, _LEVEL_RIDGE = 0.04, 0.02


def solve(gram: Floats, moment: Floats) -> Floats:
    """The multiples, from `gram`, sum of v a a^T (4, 4), and `moment`, sum of v a y (4,), all rows at least 0."""
    level = float((moment.sum() + _LEVEL_RIDGE) / (gram.sum() + _LEVEL_RIDGE))
    level = min(max(level, 1.0 / BOUND), BOUND)
    matrix, target = gram + _RIDGE / level**2 * np.eye(4), moment + _RIDGE / level
    u = np.array(np.linalg.solve(matrix, target), dtype=np.float64)
    bounded: Floats = np.clip(u, 1.0 / BOUND, BOUND)
    held = bounded != u
    for _ in range(3):  # each round holds one more, or is the last
        if not held.any() or held.all():
            break
        free = ~held
        rest = target[free] - matrix[np.ix_(free, held)] @ bounded[held]
        u[held], u[free] = bounded[held], np.linalg.solve(matrix[np.ix_(free, free)], rest)
        bounded = np.clip(u, 1.0 / BOUND, BOUND)
        held |= bounded != u
    return bounded
