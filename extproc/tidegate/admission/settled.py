"""Which outcomes have been taken in already: each counts once, however often its log entry is sent.

A batch of access-log entries is sent again when its connection breaks before it is acknowledged, within seconds. So a
finished request, by its replica and its id there, is remembered for a minute, and of at most 65,536 of them; the oldest
goes first.
"""

from collections import OrderedDict

_REMEMBERED_S = 60.0
_LEN_MAX = 65_536


class Settled:
    """A bounded memory of `(replica, id)` pairs, oldest first."""

    __slots__ = ("_seen_s",)

    def __init__(self) -> None:
        self._seen_s: OrderedDict[tuple[str, str], float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seen_s)

    def first_time(self, key: tuple[str, str], now_s: float) -> bool:
        """Remember a pair; False where it is remembered already."""
        self._forget(now_s)
        if key in self._seen_s:
            return False
        if len(self._seen_s) >= _LEN_MAX:
            self._seen_s.popitem(last=False)
        self._seen_s[key] = now_s
        return True

    def _forget(self, now_s: float) -> None:
        while self._seen_s and next(iter(self._seen_s.values())) <= now_s - _REMEMBERED_S:
            self._seen_s.popitem(last=False)
