"""So many a second, and as many at once."""


class Allowance:
    """A bound on work that is worth doing, but not at every occasion."""

    __slots__ = ("_left", "_now_s", "_per_s")

    def __init__(self, per_s: float, now_s: float) -> None:
        self._per_s = self._left = per_s
        self._now_s = now_s

    def take(self, now_s: float) -> bool:
        """One, if there is one left."""
        self._left = min(self._left + (now_s - self._now_s) * self._per_s, self._per_s)
        self._now_s = now_s
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
