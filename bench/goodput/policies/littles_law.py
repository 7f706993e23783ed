"""Little's law alone: as many at once as the present throughput serves within the time a request may take.

    admit while in flight < 1.05 X W + 4
    X  responses that ended well, a second, over the last 10 s
    W  TTFT budget of 2 s + mean tokens of an answer x mean seconds a token, as responses that ended report them

The 5 % and the 4 let it grow: with exactly X W it could never find out that more would pass. The version that is
often printed, (max_concurrent x duration) / throughput, is not a concurrency.

Source: J. D. C. Little, "A Proof for the Queuing Formula L = lambda W", Operations Research 9 (3), 1961.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

from bench.goodput.policies.baseline import Baseline

WINDOW_S = 10.0
BUDGET_S = 2.0
HEADROOM, SPARE = 1.05, 4.0
KEEP = 0.98  # of the mean decoding time, at each answer


class LittlesLaw(Baseline):
    """Reject above the limit."""

    status = 429

    def __init__(self, pool: Mapping[str, Any]) -> None:
        super().__init__(pool)
        self._ended_s: deque[float] = deque()
        self._decoding_s = 10.0

    def allows(self, now_s: float) -> bool:
        """Whether the limit leaves room; before the first window is over everything may go."""
        while self._ended_s and self._ended_s[0] < now_s - WINDOW_S:
            self._ended_s.popleft()
        if now_s < WINDOW_S:
            return True
        per_s = len(self._ended_s) / WINDOW_S
        return self.in_flight < HEADROOM * per_s * (BUDGET_S + self._decoding_s) + SPARE

    def ended(self, now_s: float, request_id: str, *, ok: bool, ttft_s: float | None, e2e_s: float | None) -> None:
        """Count it, and how long its tokens took."""
        if ok and ttft_s is not None and e2e_s is not None:
            self._ended_s.append(now_s)
            self._decoding_s += (1.0 - KEEP) * (e2e_s - ttft_s - self._decoding_s)
