"""Netflix's Gradient2: a limit that shrinks while responses take longer than they long did.

    g     = clip(1.5 long / rtt, 0.5, 1)             long: exponential mean of the response times, window 600 samples
    limit <- 0.8 limit + 0.2 (g limit + 4)           at each response, unless fewer than half the limit were in flight
    long / rtt > 2:   long <- 0.95 long

Within 20 and 1000 (the library's own maximum of 200 would bind here); it starts at 20.

Source: Netflix/concurrency-limits, Gradient2Limit and ExpAvgMeasurement (mean of the first 10 samples).
"""

from collections.abc import Mapping
from typing import Any

from bench.goodput.policies.sampled_limit import SampledLimit

LIMIT_MIN, LIMIT_MAX = 20.0, 1000.0
TOLERANCE = 1.5
SMOOTHING = 0.2
QUEUE_LEN = 4.0
LONG_WINDOW, WARM_UP = 600, 10


class Gradient2(SampledLimit):
    """Reject above the limit."""

    def __init__(self, pool: Mapping[str, Any]) -> None:
        super().__init__(pool, LIMIT_MIN)
        self._long_s = 0.0
        self._samples = 0

    def ended(self, now_s: float, request_id: str, *, ok: bool, ttft_s: float | None, e2e_s: float | None) -> None:
        """Update the limit."""
        in_flight = self.at_start.pop(request_id)
        if e2e_s is None or not ok:
            return
        long_s = self._averaged(e2e_s)
        if long_s / e2e_s > 2.0:
            self._long_s *= 0.95
        if in_flight < self.limit / 2:
            return
        gradient = min(max(TOLERANCE * long_s / e2e_s, 0.5), 1.0)
        limit = (1.0 - SMOOTHING) * self.limit + SMOOTHING * (self.limit * gradient + QUEUE_LEN)
        self.limit = min(max(limit, LIMIT_MIN), LIMIT_MAX)

    def _averaged(self, rtt_s: float) -> float:
        if self._samples < WARM_UP:
            self._samples += 1
            self._long_s += (rtt_s - self._long_s) / self._samples
        else:
            self._long_s += (rtt_s - self._long_s) * 2.0 / (LONG_WINDOW + 1)
        return self._long_s
