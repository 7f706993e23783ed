"""How many may wait where nobody states it: 5 seconds' worth of what is admitted, from 50 to 1,000 an engine.

    rate   EWMA of admissions a second, over about 10 s
    bound  clip(5 rate / engines, 50, 1000) x engines

Fifty are right for an engine that serves a few requests a second; one that serves a hundred works fifty off before
their budgets have begun to count.
"""

from math import exp

_PER_ENGINE_MIN, _PER_ENGINE_MAX = 50, 1000
_WORTH_S = 5.0
_MEMORY_S = 10.0


class QueueLen:
    """The bound that follows the rate of admissions."""

    __slots__ = ("_rate_per_s", "_updated_s")

    def __init__(self, now_s: float) -> None:
        self._rate_per_s = 0.0
        self._updated_s = now_s

    def admitted(self, now_s: float) -> None:
        """Count one admission."""
        self._rate_per_s = self._rate_per_s * exp((self._updated_s - now_s) / _MEMORY_S) + 1.0 / _MEMORY_S
        self._updated_s = now_s

    def per_engine(self, engines: int, now_s: float) -> int:
        """Requests that may wait for each of so many engines."""
        rate = self._rate_per_s * exp((self._updated_s - now_s) / _MEMORY_S)
        return int(min(max(_WORTH_S * rate / max(engines, 1), _PER_ENGINE_MIN), _PER_ENGINE_MAX))
