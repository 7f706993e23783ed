"""How many sequences an engine runs at once, from what its metrics say.

    stated:   that
    learned:  256 at first, or what the engine says
              `running`, once three readings in a row with somebody waiting and KV blocks free agree within 1
              + 1 for each reading that finds all of it running and nobody waiting, up to what it was at first
              `running`, where more run than that

An engine that lets sequences wait although it has KV blocks for them has no slot left, and then runs the same number
reading after reading. One that waits for blocks runs a number that moves; one whose steps are full of prompts lets
sequences wait for their prefill, and its readings are not given here. Still, three readings may agree by chance,
and a limit that is too low would never be seen to be: fewer would be sent, and nobody would wait. So it is tried
upwards, one at a time.
"""

_START = 256
_AGREEING = 3
_SPREAD = 1
_KV_USAGE_MAX = 0.9


class SlotsPlateau:
    """The slots of one engine.

    Attributes:
        slots: sequences it runs at once, at least 1.
    """

    __slots__ = ("_agreeing", "_said", "_start", "_stated", "slots")

    def __init__(self, stated: int | None = None, start: int = _START) -> None:
        """`stated` is the operator's figure, if any. ValueError where the one that counts is below 1."""
        self._stated = stated is not None
        self._start = self.slots = start if stated is None else stated
        if self.slots < 1:
            raise ValueError(f"{self.slots} slots: below 1")
        self._said = 0
        self._agreeing: list[int] = []  # `running` of the last readings that agree; at most three

    def says(self, slots: int) -> None:
        """The engine tells how many sequences it runs at once, at least 1; a stated figure counts for more."""
        if not self._stated and slots != self._said:
            self._said = self._start = self.slots = slots
            self._agreeing.clear()

    def reading(self, running: int, waiting: int, kv_usage: float | None = None) -> None:
        """Take in what one page of metrics says; `kv_usage` is the share of KV blocks used, if known."""
        if self._stated or running < 1:
            return
        if waiting > 0 and (kv_usage is None or kv_usage < _KV_USAGE_MAX):
            self._compare(running)
            return
        self._agreeing.clear()
        if running > self.slots:
            self.slots = running
        elif running == self.slots and waiting == 0 and self.slots < self._start:
            self.slots += 1

    def _compare(self, running: int) -> None:
        kept = [other for other in self._agreeing if abs(other - running) <= _SPREAD]
        self._agreeing = [*kept, running][-_AGREEING:] if len(kept) == len(self._agreeing) else [running]
        if len(self._agreeing) == _AGREEING:
            self.slots = max(self._agreeing)
        else:
            self.slots = max(self.slots, running)
