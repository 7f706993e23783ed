"""The window that follows the p99: what people start from.

    every 5 s:   p99 of (time to first token / its budget) above 1: window x 0.9;   else, if it was full: window x 1.05
    admit while in flight < window; else wait, first come first served, 50 deep, at most 300 ms

The times are the engine's own, from admission, as responses that ended report them: fed with the wait in its own queue
such a window collapses. It starts at 64 an engine.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from bench.goodput.policies.baseline import Baseline
from bench.goodput.policy import Verdict

START = 64.0
PERIOD_S = 5.0
SHRINK, GROW = 0.9, 1.05
QUEUE_LEN_MAX = 50
HOLD_S = 0.3


class P99Window(Baseline):
    """Queue briefly above the window, then reject."""

    def __init__(self, pool: Mapping[str, Any]) -> None:
        super().__init__(pool)
        engines = len(self._per_engine)
        self._window = START * engines
        self._queue_len_max = QUEUE_LEN_MAX * engines
        self._queue: deque[tuple[float, str]] = deque()
        self._left: set[str] = set()  # of the queue
        self._budget_s: dict[str, float] = {}
        self._shares: list[float] = []
        self._was_full = False
        self._next_s = PERIOD_S

    def asked(self, now_s: float, request_id: str, ttft_budget_s: float) -> list[Verdict]:
        """Admit, queue or reject."""
        verdicts = self.tick(now_s)
        self._budget_s[request_id] = ttft_budget_s
        if self.in_flight < int(self._window):
            verdicts.append(self.admit(now_s, request_id))
            return verdicts
        self._was_full = True
        if len(self._queue) < self._queue_len_max:
            self._queue.append((now_s, request_id))
        else:
            verdicts.append(self._reject(request_id, 429))
        return verdicts

    def tick(self, now_s: float, /) -> list[Verdict]:
        """Expire, then admit from the queue."""
        self._roll(now_s)
        verdicts: list[Verdict] = []
        while self._queue:
            since_s, request_id = self._queue[0]
            if request_id in self._left:
                self._left.remove(request_id)
            elif now_s - since_s > HOLD_S:
                verdicts.append(self._reject(request_id, 503))
            elif self.in_flight < int(self._window):
                verdicts.append(self.admit(now_s, request_id))
            else:
                break
            self._queue.popleft()
        return verdicts

    def cancel(self, now_s: float, id: str, /) -> None:  # noqa: A002
        """Give its place back, in the queue or out of it."""
        if id in self._running:
            super().cancel(now_s, id)
        else:
            self._left.add(id)
            del self._budget_s[id]

    def ended(self, now_s: float, request_id: str, *, ok: bool, ttft_s: float | None, e2e_s: float | None) -> None:
        """Take its time to first token; one whose client left in vain took longer than any target."""
        budget_s = self._budget_s.pop(request_id)
        if ttft_s is not None:
            self._shares.append(ttft_s / budget_s)
        elif e2e_s is None:
            self._shares.append(float("inf"))

    def _reject(self, request_id: str, status: int) -> Verdict:
        del self._budget_s[request_id]
        return request_id, "reject", status, None

    def _roll(self, now_s: float) -> None:
        if now_s < self._next_s:
            return
        self._next_s = now_s + PERIOD_S
        if self._shares and np.quantile(self._shares, 0.99, method="higher") > 1.0:
            self._window = max(1.0, self._window * SHRINK)
        elif self._was_full:
            self._window *= GROW
        self._shares.clear()
        self._was_full = False
