"""A fixed number of requests at once, for the whole pool; the rest is rejected.

    admit while in flight < limit

The bench tries a grid and takes the best for each cell: what an operator who knew the traffic beforehand would set.
"""

from collections.abc import Mapping
from typing import Any

from bench.goodput.policies.baseline import Baseline


class FixedConcurrency(Baseline):
    """Reject above `limit`."""

    status = 429

    def __init__(self, pool: Mapping[str, Any], limit: int) -> None:
        super().__init__(pool)
        self._limit = limit

    def allows(self, now_s: float) -> bool:
        """Whether a place is free."""
        return self.in_flight < self._limit
