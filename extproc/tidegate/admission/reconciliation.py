"""What an engine runs beside what is booked in it: traffic that came another way, and bookings whose request is gone.

    excess        running + waiting - booked                              of one reading
    foreign       max(0, least excess of the last 3 readings)             takes up slots
    gone          max(0, least -excess of the last 3 readings)            gives slots back, at most those of bookings
                                                                          that should long be over (see reckoning.py)
    foreign KV    max(0, least usage x K - held of the last 3 readings)   takes up KV tokens, while foreign > 0

A request that is on its way to the engine is booked and not counted yet; one whose client has left is counted for a
moment longer. Both last a few milliseconds, so none is in three readings a second apart. An engine may well run less
than is booked for longer than that: it prepares images, or its answer is read slowly. So a booking is given up only
where its answer should also be over; else more and more would be sent to an engine that counts late.
"""

from collections import deque

_READINGS = 3
_EXPLAINED, _EXPLAINED_SHARE = 2, 0.1


class Reconciliation:
    """The difference between the books of one engine, or of several as one, and its own count.

    Attributes:
        foreign: sequences that it runs and that nobody here has sent.
        gone: sequences that are booked and that it does not run any more.
        kv_tokens: KV tokens of the foreign ones, less those of the gone ones.
    """

    __slots__ = ("_excess", "_kv_excess", "foreign", "gone", "kv_tokens")

    def __init__(self) -> None:
        self._excess: deque[int] = deque(maxlen=_READINGS)
        self._kv_excess: deque[float] = deque(maxlen=_READINGS)
        self.foreign = self.gone = 0
        self.kv_tokens = 0.0

    @property
    def sequences(self) -> int:
        """Sequences to add to what is booked; less than nothing where bookings are gone."""
        return self.foreign - self.gone

    def reading(self, excess: int, *, overdue: int, held_each: float, kv_excess_tokens: float | None) -> None:
        """Take in one count.

        Args:
            excess: sequences counted beyond those booked.
            overdue: sequences booked that should long be over.
            held_each: KV tokens that a booked sequence holds, on average.
            kv_excess_tokens: KV tokens in use beyond those booked; None where the engine does not say.
        """
        self._excess.append(excess)
        self._kv_excess.append(kv_excess_tokens or 0.0)
        if len(self._excess) < _READINGS:
            return
        self.foreign = max(min(self._excess), 0)
        self.gone = min(max(-max(self._excess), 0), overdue)
        self.kv_tokens = max(min(self._kv_excess), 0.0) if self.foreign else -held_each * self.gone

    def keep_within(self, booked: int) -> None:
        """So many sequences are booked now: no more than these can be gone, whatever the last readings said."""
        if self.gone > booked:
            self.kv_tokens *= booked / self.gone
            self.gone = booked

    def forget(self) -> None:
        """The books alone count, until three readings have come again."""
        self._excess.clear()
        self._kv_excess.clear()
        self.foreign = self.gone = 0
        self.kv_tokens = 0.0


def is_explained(excess: int, booked: int) -> bool:
    """Whether what an engine counts is what was sent to it, but for what is on its way: then one explains the other."""
    return excess <= max(_EXPLAINED, _EXPLAINED_SHARE * booked)
