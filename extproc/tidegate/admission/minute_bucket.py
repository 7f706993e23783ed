"""So much a minute, as a token bucket.

    level    rises by `per_minute` / 60 a second up to `per_minute`, and falls by what is spent
    open     level >= min(amount, per_minute): what is larger than a whole minute's worth goes when the bucket is full
    level    may fall below zero, by at most `per_minute`: what turned out larger than it was reserved for is owed

After an idle minute a whole minute's worth can go at once, so that in any one minute at most twice the rate passes, and
over many minutes never more than the rate. A window that resets on the minute lets the same through, all of it around
the turn of the minute.
"""


class MinuteBucket:
    """A bucket that starts full. Time is told and never goes back."""

    __slots__ = ("_level", "_now_s", "per_minute")

    def __init__(self, per_minute: float, now_s: float) -> None:
        self.per_minute = per_minute
        self._level = float(per_minute)
        self._now_s = now_s

    def level(self, now_s: float) -> float:
        """What can be spent now; negative where more was spent than there was."""
        if now_s > self._now_s:
            self._level = min(self._level + (now_s - self._now_s) * self.per_minute / 60.0, self.per_minute)
            self._now_s = now_s
        return self._level

    def wait_s(self, amount: float, now_s: float) -> float:
        """How long until so much can be spent; 0 where it can be now."""
        missing = min(amount, self.per_minute) - self.level(now_s)
        return max(missing * 60.0 / self.per_minute, 0.0)

    def spend(self, amount: float, now_s: float) -> None:
        """Take so much; a negative amount gives back."""
        self._level = min(max(self.level(now_s) - amount, -float(self.per_minute)), self.per_minute)

    def restate(self, per_minute: float, now_s: float) -> None:
        """Go on at another rate: what is left stays, as far as the new bucket holds it."""
        self.level(now_s)
        self.per_minute = per_minute
        self._level = min(max(self._level, -float(per_minute)), per_minute)
