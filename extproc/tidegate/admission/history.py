"""What an engine did until when: running integrals of its load, kept for a few minutes.

    sequence_s   integral of decoding sequences over time
    kv_token_s   integral of KV tokens of decoding sequences over time
    position     prompt tokens prefilled;   attention   token pairs attended over
    frontier, owed   how far the engine had come in its line, and what was corrected of that (see prefill_line.py)

Reason: an outcome comes when its request has ended and tells how long so many steps took. What else those steps carried
is a difference of these sums between its first token and its last. Points are 0.1 s apart or more and interpolated;
what is older than the 2,048 latest is forgotten.
"""

from bisect import bisect_right
from typing import NamedTuple

_APART_S = 0.1
_LEN_MAX = 2048


class Totals(NamedTuple):
    """Sums since the start of an engine's book."""

    sequence_s: float
    kv_token_s: float
    position_tokens: float
    attention: float
    frontier_tokens: float
    owed_tokens: float


class History:
    """Totals by time; times never go back."""

    __slots__ = ("_times_s", "_totals")

    def __init__(self) -> None:
        self._times_s: list[float] = []
        self._totals: list[Totals] = []

    def is_due(self, now_s: float) -> bool:
        """Whether enough time has passed since the latest point."""
        return not self._times_s or now_s - self._times_s[-1] >= _APART_S

    def note(self, now_s: float, totals: Totals) -> None:
        """Remember the totals of now."""
        if len(self._times_s) >= 2 * _LEN_MAX:
            del self._times_s[:_LEN_MAX], self._totals[:_LEN_MAX]
        self._times_s.append(now_s)
        self._totals.append(totals)

    def at(self, time_s: float, now_s: float, totals: Totals) -> Totals | None:
        """Totals at a time from the oldest point to now; `totals` are those of now. None where it is too long ago."""
        if time_s >= now_s:
            return totals
        later = bisect_right(self._times_s, time_s)
        if later == 0:
            return None
        before_s, before = self._times_s[later - 1], self._totals[later - 1]
        after_s, after = (self._times_s[later], self._totals[later]) if later < len(self._times_s) else (now_s, totals)
        if after_s <= before_s:
            return after
        share = (time_s - before_s) / (after_s - before_s)
        return Totals(*(low + share * (high - low) for low, high in zip(before, after, strict=True)))
