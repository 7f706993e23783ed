"""How many requests a server holds that finishes X of them a second, if each may take W seconds: Little's law.

    limit = X W,   X = completions / seconds, of the last 10 seconds in which the server was busy

W is the time a request takes when it just meets its objective, X what the server can finish. With more in flight than
X W each takes longer than W, whatever the order. Often printed as (max_concurrent x duration) / throughput; that is a
time squared, over what a request takes, and no concurrency.

X is what the server can do only while it is busy: somebody waits, or a limit is reached. At other times it is the
arrivals' own rate, and a limit made of that closes for good. Where nobody tells `watch`, all time counts as busy.

A sanity clamp. As the only limiter it reaches 0.35 of what is possible (ADMISSION.md): X counts requests, and requests
are not alike.
"""

from collections import deque
from math import isfinite

_SPAN_S = 1.0
_SPANS = 10
_BUSY_S_MIN = 2.0
_COMPLETIONS_MIN = 10


class LittlesLaw:
    """The clamp of one engine or pool; it keeps ten spans of a busy second each, or longer where nobody called."""

    __slots__ = ("_busy", "_completions", "_now_s", "_span_completions", "_span_s", "_spans")

    def __init__(self) -> None:
        self._spans: deque[tuple[float, int]] = deque(maxlen=_SPANS)  # busy seconds, and completions in them
        self._span_s = 0.0  # of the span under way
        self._span_completions = 0
        self._busy = True
        self._now_s: float | None = None  # None: nothing heard yet

    def watch(self, *, busy: bool, now_s: float) -> None:
        """Tell whether the server is busy from now on."""
        self._roll(now_s)
        self._busy = busy

    def completed(self, now_s: float) -> None:
        """Count one completion; of a server that is not busy it says nothing."""
        self._roll(now_s)
        self._span_completions += self._busy

    def limit(self, target_s: float, now_s: float) -> float | None:
        """Requests that may be in flight if each may take `target_s`, at least 1.

        None until 10 completions in 2 busy seconds were seen, or where `target_s` is no time.
        """
        self._roll(now_s)
        busy_s = self._span_s + sum(span_s for span_s, _ in self._spans)
        completions = self._span_completions + sum(count for _, count in self._spans)
        if busy_s < _BUSY_S_MIN or completions < _COMPLETIONS_MIN or not (isfinite(target_s) and target_s > 0.0):
            return None
        return max(completions / busy_s * target_s, 1.0)

    def _roll(self, now_s: float) -> None:
        """Account for the time since the last call."""
        if self._busy and self._now_s is not None:
            self._span_s += max(now_s - self._now_s, 0.0)
        self._now_s = now_s
        if self._span_s >= _SPAN_S:
            self._spans.append((self._span_s, self._span_completions))
            self._span_s, self._span_completions = 0.0, 0
