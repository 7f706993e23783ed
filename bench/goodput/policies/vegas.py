"""Netflix's port of TCP Vegas: the limit keeps a small queue, told from the shortest response time seen.

    queue = ceil(limit (1 - shortest / rtt)),   l = max(1, floor(log10 limit))
    at each response:   queue <= l: limit + 6 l;   queue < 3 l: limit + l;   queue > 6 l: limit - l;   a drop: limit - l

`shortest` is taken anew every (15 to 30) x limit responses. Nothing changes while fewer than half the limit are in
flight. Within 1 and 1000; it starts at 20. A client that leaves before its answer is whole is a drop.

Source: Netflix/concurrency-limits, VegasLimit, its defaults.
"""

from collections.abc import Mapping
from math import ceil, log10
from random import Random
from typing import Any

from bench.goodput.policies.sampled_limit import SampledLimit

LIMIT_START, LIMIT_MAX = 20.0, 1000.0
PROBE_EVERY = 30


class Vegas(SampledLimit):
    """Reject above the limit."""

    def __init__(self, pool: Mapping[str, Any], seed: int) -> None:
        super().__init__(pool, LIMIT_START)
        self._random = Random(seed)
        self._shortest_s = 0.0
        self._since_probe = 0
        self._jitter = self._random.uniform(0.5, 1.0)

    def ended(self, now_s: float, request_id: str, *, ok: bool, ttft_s: float | None, e2e_s: float | None) -> None:
        """Update the limit."""
        in_flight = self.at_start.pop(request_id)
        if e2e_s is None:
            self.limit = max(1.0, self.limit - _log(self.limit))
        elif ok and not self._measures(e2e_s):
            self.limit = min(max(self._after(e2e_s, in_flight), 1.0), LIMIT_MAX)

    def _measures(self, rtt_s: float) -> bool:
        """Whether the sample only sets the shortest time."""
        self._since_probe += 1
        if self._jitter * PROBE_EVERY * self.limit <= self._since_probe:
            self._jitter, self._since_probe = self._random.uniform(0.5, 1.0), 0
        elif self._shortest_s and rtt_s >= self._shortest_s:
            return False
        self._shortest_s = rtt_s
        return True

    def _after(self, rtt_s: float, in_flight: int) -> float:
        if in_flight * 2 < self.limit:
            return self.limit
        queue_len = ceil(self.limit * (1.0 - self._shortest_s / rtt_s))
        unit = _log(self.limit)
        if queue_len <= unit:
            return self.limit + 6 * unit
        if queue_len < 3 * unit:
            return self.limit + unit
        return self.limit - unit if queue_len > 6 * unit else self.limit


def _log(limit: float) -> int:
    return max(1, int(log10(limit)))
