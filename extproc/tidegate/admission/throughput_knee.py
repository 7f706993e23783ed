"""How many requests an engine works on at once: the concurrency from which on its throughput grows no more.

    X(n)  = work completed while n were in the engine / time that n were in it       n in levels of half an octave
    gain    X grows from a level to the next by at least a quarter of what n does
    knee  = a level that gains on the one below, while the one above does not gain on it
    quiet = the level below the knee

Work is counted in expected service seconds, so that a mix of small and large requests is one unit. An engine of m
workers has X = n up to m and m beyond; one that batches bends earlier and softer; neither tells anybody. Below the knee
the engine idles, above it requests wait inside, where nobody orders them or lets them expire.

The limit starts at 8 and walks to the knee. Each time enough requests ended at it, it is compared with the
levels beside: it goes down to one that was never measured or that it does not gain on, up to one that was never
measured or that gains on it, else now and then to one that was not measured for a while, and is back a step later:
after 1 step and 5 s at first, for expected times are still learned then and with them the unit of X, and twice as long
each time up to 16 steps and a minute. Only neighbours are compared: the best of many noisy figures would always be one
of the luckiest.

Whoever leaves frees a place here, but not always a worker there: many engines finish what they have begun, for nobody.
Were only answers counted, an engine so full of such work that everybody leaves would never be seen to do nothing, and
expected times, learned in that crowd, could not tell either. So each ending counts, with no work where there was no
answer. Where as many as there are places, at least 4, end in a row without one, or half of those of a step, the limit
goes down by two levels whatever else is known, until the engine has worked off what it has and answers again.

With no more than `quiet` in the engine nobody waits in it, so the time of an answer is the engine's own: service times
are learned from such answers, which the looks down bring in however busy the engine is.
"""

from bisect import bisect_right
from collections.abc import Mapping

from tidegate.admission.arrays import saved_array

LEVELS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
_START = LEVELS.index(8)
_GAIN = 0.25
_STEP_AFTER, _FIRST_STEPS_AFTER, _STEP_AFTER_EACH = 64.0, 16.0, 4.0
_KNOWN_FROM = 12.0
_BARREN_MIN, _FRUITFUL, _DOWN = 4, 0.5, 2
_MEMORY, _MEMORY_EACH = 64.0, 8.0
_LOOK_S_MIN, _LOOK_S_MAX, _LOOKS_MAX = 5.0, 60.0, 4


class _Level:
    __slots__ = ("endings", "seconds", "seen_s", "work_s")

    def __init__(self) -> None:
        self.clear()
        self.seen_s = 0.0

    def clear(self) -> None:
        self.endings = self.seconds = self.work_s = 0.0

    @property
    def throughput(self) -> float | None:
        """Service seconds a second, or None where too little was seen."""
        known = self.endings >= _KNOWN_FROM and self.seconds > 0.0
        return self.work_s / self.seconds if known else None

    def forget(self, memory: float) -> None:
        """Halve the past once it outweighs the present."""
        if self.endings > memory:
            self.endings, self.seconds, self.work_s = self.endings / 2, self.seconds / 2, self.work_s / 2


class ThroughputKnee:
    """The learned concurrency of one engine.

    Attributes:
        quiet: so many in it do not wait for each other; 0 until the knee is known.
    """

    __slots__ = ("_answered", "_at", "_barren", "_levels", "_looks", "_since_step", "_steps", "quiet")

    def __init__(self) -> None:
        self._levels = [_Level() for _ in LEVELS]
        self._at = _START
        self._since_step = 0.0
        self._looks = self._steps = self._barren = self._answered = 0
        self.quiet = 0

    @property
    def slots(self) -> int:
        """Requests it is given at once, at least 1."""
        return LEVELS[self._at]

    def level(self, in_flight: float) -> int:
        """The level that so many requests in the engine, at least 1, belong to."""
        return max(bisect_right(LEVELS, in_flight) - 1, 0)

    def passed(self, level: int, seconds: float) -> None:
        """So many seconds passed at a level."""
        self._levels[level].seconds += seconds

    def ended(self, level: int, work_s: float, now_s: float) -> None:
        """A request ended while the engine was at a level, and so many expected service seconds were done with it.

        `work_s` is 0 where no answer came, because its client left or the engine would not take it.
        """
        seen = self._levels[level]
        seen.endings += 1.0
        seen.work_s += work_s
        seen.seen_s = now_s
        seen.forget(_MEMORY + _MEMORY_EACH * LEVELS[level])
        self._barren = 0 if work_s > 0.0 else self._barren + 1
        if self._barren >= max(_BARREN_MIN, self.slots):
            self._retreat()
        elif level == self._at:
            self._since_step += 1.0
            self._answered += work_s > 0.0
            if self._since_step >= (_STEP_AFTER if self.quiet else _FIRST_STEPS_AFTER) + _STEP_AFTER_EACH * self.slots:
                self._step(now_s)

    def dump(self) -> dict[str, object]:
        """What was learned, in plain numbers."""
        levels = self._levels
        return {
            "at": float(self._at),
            "quiet": float(self.quiet),
            "endings": [level.endings for level in levels],
            "seconds": [level.seconds for level in levels],
            "work_s": [level.work_s for level in levels],
        }

    def restore(self, record: Mapping[str, object]) -> None:
        """Take over what `dump` gave; ValueError, and no change, where it is damaged."""
        at, quiet = float(saved_array(record, "at", ())), float(saved_array(record, "quiet", ()))
        shape = (len(LEVELS),)
        rows = [saved_array(record, name, shape) for name in ("endings", "seconds", "work_s")]
        if not (at.is_integer() and 0 <= at < len(LEVELS) and quiet in (0, *LEVELS)) or any(
            row.min() < 0.0 or row.max() > 1e9 for row in rows
        ):
            raise ValueError("at, quiet, endings, seconds, work_s: out of range")
        for level, endings, seconds, work_s in zip(self._levels, *(row.tolist() for row in rows), strict=True):
            level.endings, level.seconds, level.work_s = endings, seconds, work_s
        self._at, self._since_step, self.quiet = int(at), 0.0, int(quiet)

    def _retreat(self) -> None:
        """Go down two levels, and forget what was measured from there on: it was another engine, or a better day."""
        self._at = max(self._at - _DOWN, 0)
        for level in self._levels[self._at :]:
            level.clear()
        self._barren = self._answered = 0
        self._since_step = 0.0

    def _step(self, now_s: float) -> None:
        """Compare with the levels beside, and move to where one gives more, or to one that is not known."""
        at, below, above = self._at, self._at - 1, self._at + 1
        fruitful = self._answered >= _FRUITFUL * self._since_step
        self._since_step, self._answered = 0.0, 0
        self._steps += 1
        if not fruitful:
            self._retreat()
            return
        if below >= 0 and self._levels[below].throughput is None:
            self._at = below
            return
        worth_it = below < 0 or self._gains(below, at)
        self.quiet = LEVELS[max((at if worth_it else below) - 1, 0)]
        if not worth_it:
            self._at = below
        elif above < len(LEVELS) and (self._levels[above].throughput is None or self._gains(at, above)):
            self._go(above, now_s)
        elif self._steps > 1 << self._looks:
            aside = next((place for place in (above, below) if self._is_stale(place, now_s)), None)
            if aside is not None:
                self._look(aside, now_s)

    def _gains(self, lower: int, upper: int) -> bool:
        """Whether throughput grows from one level to the next by a quarter of what concurrency does, at least."""
        few, many = self._levels[lower].throughput, self._levels[upper].throughput
        grown = LEVELS[upper] / LEVELS[lower] - 1.0
        return few is not None and many is not None and many >= few * (1.0 + _GAIN * grown)

    def _is_stale(self, place: int, now_s: float) -> bool:
        if not 0 <= place < len(LEVELS):
            return False
        return self._levels[place].throughput is None or now_s - self._levels[place].seen_s > self._look_s

    @property
    def _look_s(self) -> float:
        """How long what was measured at a level beside holds: less at first, while expected times are still learned."""
        return min(_LOOK_S_MIN * float(1 << self._looks), _LOOK_S_MAX)

    def _look(self, place: int, now_s: float) -> None:
        self._go(place, now_s)
        self._looks, self._steps = min(self._looks + 1, _LOOKS_MAX), 0

    def _go(self, place: int, now_s: float) -> None:
        if place != self._at and self._is_stale(place, now_s):
            self._levels[place].clear()
        self._at = place
