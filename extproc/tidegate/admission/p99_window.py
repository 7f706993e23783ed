"""A limit on requests in flight, from the 99th percentile of a latency: the rule that people start from.

    every 5 s with n samples:   p99 > target                        limit *= 0.9
                                else, if the limit was reached      limit *= 1.05
    within floor and ceiling;   no sample, no change

p99 is the ceil(0.99 n)-th smallest sample, so p99 > target if and only if more than floor(n / 100) samples are above
the target. Two counters are therefore exact, and there is nothing to bound.

A limit that was never reached has not been tested: raised all night, it would be no limit in the morning. Where nobody
tells how many were in flight, it is raised as the rule is printed.

The samples must be engine time: the time to first token or a token's time, counted from the moment the request was
sent to the engine. Fed with the wait in the gateway's own queue, the rule closes on the queue that it causes and falls
to its floor. As the only limit it reaches 0.61 of what is possible, as much as a fixed limit chosen by an oracle: one
number cannot stand for slots, KV cache and prefill at once (ADMISSION.md).
"""

from math import floor, inf, isfinite

_WINDOW_S = 5.0
_DOWN, _UP = 0.9, 1.05


class P99Window:
    """One limit.

    Attributes:
        target_s: what the 99th percentile may be.
        limit: requests that may be in flight; a float, of which whole requests are let in.
    """

    __slots__ = ("_ceiling", "_floor", "_over", "_peak", "_samples", "_since_s", "limit", "target_s")

    def __init__(self, target_s: float, start: float, floor: float = 1.0, ceiling: float = inf) -> None:
        """ValueError unless 0 < target_s and 0 < floor <= ceiling."""
        if not target_s > 0.0 or not 0.0 < floor <= ceiling:
            raise ValueError(f"target_s {target_s}, floor {floor}, ceiling {ceiling}: not above 0 and in order")
        self.target_s = target_s
        self._floor, self._ceiling = floor, ceiling
        self.limit = min(max(start, floor), ceiling)
        self._since_s: float | None = None  # the window's start; None until the first `roll`
        self._samples = 0
        self._over = 0
        self._peak: int | None = None  # most in flight in this window; None: nobody told

    def sample(self, latency_s: float, in_flight: int | None = None) -> None:
        """Count one request's latency in the engine, and how many were in flight when it ended, itself included.

        What is no number of seconds counts for nothing.
        """
        if isfinite(latency_s) and latency_s >= 0.0:
            self._samples += 1
            self._over += latency_s > self.target_s
        if in_flight is not None:
            self._peak = max(in_flight, self._peak or 0)

    def roll(self, now_s: float) -> None:
        """Close the window if it is due; one that closes late counts once."""
        if self._since_s is None:
            self._since_s = now_s
        if now_s - self._since_s < _WINDOW_S:
            return
        if self._over > self._samples // 100:
            self.limit = max(self.limit * _DOWN, self._floor)
        elif self._samples and (self._peak is None or self._peak >= floor(self.limit)):
            self.limit = min(self.limit * _UP, self._ceiling)
        self._since_s, self._samples, self._over, self._peak = now_s, 0, 0, None
