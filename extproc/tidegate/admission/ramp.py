"""The share of its limits that a pool uses after a start: a quarter at first, all of them ten seconds later.

    share = 0.25 + 0.75 k / 100,   k = whole tenths of a second since the start, at most 100

A process that has just started knows nothing of the requests that its engines still run, and cold engines take a while
to reach their speed. The line climbs in steps, so that between two of them nothing depends on the time.
"""

_SHARE_START = 0.25
_STEPS = 100
_STEPS_PER_S = 10
_SLOP = 1e-3  # of a step: a call at the very moment of a step must count it, whatever the rounding


class Ramp:
    """One climb; it starts when it is built and again at `restart`."""

    __slots__ = ("_start_s",)

    def __init__(self, *, start_s: float, enabled: bool = True) -> None:
        self._start_s: float | None = start_s if enabled else None

    def restart(self, now_s: float) -> None:
        """Begin again at a quarter; without effect where ramping is switched off."""
        if self._start_s is not None:
            self._start_s = now_s

    def share(self, now_s: float) -> float:
        """Share of the limits in use, 0.25 to 1."""
        if self._start_s is None:
            return 1.0
        return _SHARE_START + (1.0 - _SHARE_START) * self._steps(now_s, self._start_s) / _STEPS

    def next_step_s(self, now_s: float) -> float | None:
        """When the share rises next; None once it is whole."""
        if self._start_s is None:
            return None
        steps = self._steps(now_s, self._start_s)
        return None if steps >= _STEPS else self._start_s + (steps + 1) / _STEPS_PER_S

    @staticmethod
    def _steps(now_s: float, start_s: float) -> int:
        return min(max(int((now_s - start_s) * _STEPS_PER_S + _SLOP), 0), _STEPS)
