"""Envoy's admission control filter: shed in proportion to the failures of the last 30 seconds.

    P(reject) = min(0.8, ((n - s / 0.95) / (n + 1)) ^ (1 / aggression)),   aggression 1
    n  requests of the window that were let through and have an outcome,   s  those that succeeded

A response that has begun is a success, as Envoy judges by the response headers, and the engine here sends those with
the first token; a request whose client left before, or that an engine refused, is a failure. Refused ones do not count.

Source: Envoy documentation, "Admission Control"; source/extensions/filters/http/admission_control; its defaults.
"""

from collections import deque
from collections.abc import Mapping
from random import Random
from typing import Any

from bench.goodput.policies.baseline import Baseline

WINDOW_S = 30.0
SUCCESS_RATE = 0.95
AGGRESSION = 1.0
REJECTED_MAX = 0.8


class SuccessRate(Baseline):
    """Reject at random, the more the more requests failed."""

    def __init__(self, pool: Mapping[str, Any], seed: int) -> None:
        super().__init__(pool)
        self._random = Random(seed)
        self._outcomes: deque[tuple[float, bool]] = deque()  # as many as end in a window
        self._successes = 0
        self._answered: set[str] = set()

    def allows(self, now_s: float) -> bool:
        """Draw against the success rate."""
        self._forget(now_s - WINDOW_S)
        n = len(self._outcomes)
        share = max(0.0, (n - self._successes / SUCCESS_RATE) / (n + 1))
        return self._random.random() >= min(REJECTED_MAX, float(share ** (1.0 / AGGRESSION)))

    def first_token(self, now_s: float, id: str, /) -> None:  # noqa: A002
        """Its response has begun."""
        self._answered.add(id)
        self._record(now_s, ok=True)

    def ended(self, now_s: float, request_id: str, *, ok: bool, ttft_s: float | None, e2e_s: float | None) -> None:
        """Count it if its response never began."""
        if request_id in self._answered:
            self._answered.remove(request_id)
        else:
            self._record(now_s, ok=ok)

    def _record(self, now_s: float, *, ok: bool) -> None:
        self._outcomes.append((now_s, ok))
        self._successes += ok

    def _forget(self, before_s: float) -> None:
        while self._outcomes and self._outcomes[0][0] < before_s:
            self._successes -= self._outcomes.popleft()[1]
