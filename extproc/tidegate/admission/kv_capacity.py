"""How many KV tokens an engine holds, in the tokens that the books count.

    reading n with usage > 0.15:      K += max(0.02, 1 / n) (clip(own / usage, K / 4, 4 K) - K)
    a stall at `kv` tokens held:      K = 0.9 min(K, 1.05 kv),   at most once in 5 s
    without readings, while limited:  K *= 1.002 each 100 ms, from 15 s after the last stall on
    an engine that says its size:     the start is that
    bounds:                           start / 8 to 8 start; never above a stated value

`own` is what the books say the engine holds, `usage` the share of its cache that it says is used. Their quotient is not
the cache's size but what fits in terms of the books: prompts that share a prefix take less than they count, blocks that
are only partly filled take more. Little usage makes the quotient mostly noise. The first readings count for much, so
that a start five times wrong is forgotten within a dozen of them; a stated start counts as ten.

Without readings only a stall tells that the cache is full: the engine preempts, and one stream falls silent while
another moves on; it takes seconds to drain, and further stalls of that time are the same news. Then growth is a probe,
and it is taken back by a tenth when it goes too far. On chats this is hardly better than no KV gate (ADMISSION.md);
state the figure where the engine has no metrics.
"""

from math import inf, isfinite

_START = 100_000
_USAGE_MIN = 0.15
_GAIN_MIN = 0.02
_STATED_READINGS = 10
_CLIP = 4.0
_BOUND = 8.0
_STALL_KEEP, _STALL_OVER = 0.9, 1.05
_STALL_EVERY_S = 5.0
_GROWTH, _GROWTH_EVERY_S, _GROWTH_AFTER_S = 1.002, 0.1, 15.0
_GROWTH_STEPS_MAX = 10  # a caller that slept a while does not make up for it at once
_SLOP = 1e-3  # of a step, for rounding


class KvCapacity:
    """The capacity of one engine; `stated` is its operator's figure, None where there is none."""

    __slots__ = (
        "_ceiling",
        "_floor",
        "_grown_s",
        "_now_s",
        "_quiet_s",
        "_readings",
        "_said",
        "_seen",
        "_stalled_s",
        "_stated",
        "_tokens",
    )

    def __init__(self, stated: int | None, start: int = _START) -> None:
        """ValueError unless the start, stated or not, is at least 1."""
        first = start if stated is None else stated
        if first < 1:
            raise ValueError(f"{first} KV tokens: below 1")
        self._stated = stated is not None
        self._readings = self._said = 0
        self._begin(first, known=self._stated)
        self._seen = False  # a reading that said something
        self._now_s = self._quiet_s = self._grown_s = -inf  # of the last tick; no stall since; growth counted until
        self._stalled_s = -inf

    @property
    def tokens(self) -> int:
        """KV tokens to book at most, at least 1."""
        return int(self._tokens)

    def says(self, kv_tokens: int) -> None:
        """The engine tells how many tokens its cache holds, at least 1; a stated figure counts for more."""
        if not self._stated and kv_tokens != self._said:
            self._said = kv_tokens
            self._begin(kv_tokens, known=True)

    def reading(self, own_kv_tokens: float, usage: float) -> None:
        """Take in the engine's word; one that says nothing, because little is held, is passed over."""
        if not (_USAGE_MIN < usage <= 1.0 and isfinite(own_kv_tokens) and own_kv_tokens >= 1.0):
            return
        gain = max(_GAIN_MIN, 1.0 / (self._readings + 1))
        sample = min(max(own_kv_tokens / usage, self._tokens / _CLIP), self._tokens * _CLIP)
        self._set(self._tokens + gain * (sample - self._tokens))
        self._readings = min(self._readings + 1, int(1.0 / _GAIN_MIN))
        self._seen = True

    def stalled(self, kv_tokens: float) -> None:
        """The engine seems to have run out of cache while the books said that it held `kv_tokens`."""
        if not isfinite(kv_tokens) or self._now_s < self._stalled_s + _STALL_EVERY_S:
            return
        self._stalled_s = self._quiet_s = self._now_s
        self._set(_STALL_KEEP * min(self._tokens, _STALL_OVER * kv_tokens))

    def tick(self, now_s: float, limited: bool) -> None:
        """Tell the time, and whether requests wait for KV tokens now."""
        self._now_s = now_s
        if self._quiet_s == -inf:
            self._quiet_s = now_s  # nothing is known of what was before
        grown_s = max(self._grown_s, self._quiet_s + _GROWTH_AFTER_S)
        if not limited or self._seen or now_s < grown_s:
            self._grown_s = now_s
            return
        steps = int((now_s - grown_s) / _GROWTH_EVERY_S + _SLOP)
        if steps > 0:
            self._set(self._tokens * _GROWTH ** min(steps, _GROWTH_STEPS_MAX))
            self._grown_s = grown_s + steps * _GROWTH_EVERY_S

    def _begin(self, first: int, *, known: bool) -> None:
        self._tokens = float(first)
        self._floor = max(first / _BOUND, 1.0)
        self._ceiling = float(first) if self._stated else first * _BOUND
        self._readings = _STATED_READINGS if known else 0

    def _set(self, tokens: float) -> None:
        self._tokens = min(max(tokens, self._floor), self._ceiling)
