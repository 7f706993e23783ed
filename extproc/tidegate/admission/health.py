"""Whether an engine gets requests, and what share of its limits, from how its requests ended.

    down      after a connect failure, or three failures in a row: for 1 s, then 2, 4 .. 30 s
    on trial  after that, for 10 s: a quarter of its limits, rising as in ramp.py; one failure takes it down again; one
              that could not be reached has a hundredth for a second before, or a whole quarter would fail again
    well      a whole trial without failure: all of its limits, and the next time down is 1 s again
    refused   (its own 429 or 503) the share is halved, at most once a second, to no less than 0.1, and rises from
              there to 1 in 10 s

A single 5xx of an engine that runs takes nothing down: some requests fail wherever they are sent, and one client that
repeats such a request would take out engine after engine. Three in a row, with no success between them, are no client's
doing in a pool that shares its engines. A refusal is congestion and no sickness: the engine works, but it holds more
than the books say, so it gets less for a while and is not counted as having failed. Requests that were in flight when
it went down may fail late: nothing counts while it is down. Shares change on whole tenths of a second only, so that
nothing depends on the time between two steps.
"""

_FAILURES = 3
_DOWN_S, _DOWN_S_MAX = 1.0, 30.0
_HALVE_EVERY_S = 1.0
_SHARE_TRIAL, _SHARE_MIN = 0.25, 0.1
_SHARE_PROBE, _PROBE_S = 0.01, 1.0
_STEPS, _STEPS_PER_S = 100, 10
_SLOP = 1e-3  # of a step: a call at the very moment of a step must count it, whatever the rounding


class Health:
    """The state of one engine; it begins well.

    Attributes:
        unreachable: it is down, or was the last time, because it could not be reached.
    """

    __slots__ = (
        "_base",
        "_climb_s",
        "_down_s",
        "_down_until_s",
        "_failures",
        "_refused_s",
        "_trial_ends_s",
        "unreachable",
    )

    def __init__(self) -> None:
        self._failures = 0  # in a row
        self._down_s = _DOWN_S  # how long it will be down the next time
        self._down_until_s: float | None = None  # the last time down
        self._trial_ends_s: float | None = None
        self._climb_s: float | None = None  # since when the share rises; in the future while it is down or probed
        self._base = 1.0  # and from where
        self._refused_s: float | None = None
        self.unreachable = False

    def failed(self, now_s: float, *, connect: bool) -> None:
        """A request ended in a 5xx, a reset or a timeout of the engine's; `connect`: it was never reached."""
        if self.down(now_s):
            return
        on_trial = self._trial_ends_s is not None and now_s < self._trial_ends_s
        if not on_trial:
            self._trial_ends_s = None
            self._failures += 1
        if connect or on_trial or self._failures >= _FAILURES:
            self.unreachable = connect
            self._take_down(now_s)

    def refused(self, now_s: float) -> None:
        """The engine itself said 429 or 503: it holds as much as it will."""
        if self.down(now_s) or (self._refused_s is not None and now_s < self._refused_s + _HALVE_EVERY_S):
            return
        self._base, self._climb_s, self._refused_s = max(self.share(now_s) / 2.0, _SHARE_MIN), now_s, now_s

    def succeeded(self, now_s: float) -> None:
        """A request was answered."""
        if not self.down(now_s):
            self._failures = 0

    def down(self, now_s: float) -> bool:
        """Whether it gets nothing."""
        return self._down_until_s is not None and now_s < self._down_until_s

    def share(self, now_s: float) -> float:
        """Share of its limits that it may use: 0 while it is down, 0.01 while it is probed, else 0.1 to 1."""
        if self._climb_s is None:
            return 1.0
        if self.down(now_s):
            return 0.0
        if now_s < self._climb_s:
            return _SHARE_PROBE
        steps = self._steps(now_s, self._climb_s)
        return 1.0 if steps == _STEPS else self._base + (1.0 - self._base) * steps / _STEPS

    def next_change_s(self, now_s: float) -> float | None:
        """When the share changes next if nothing happens; None where it is whole."""
        if self._climb_s is None:
            return None
        if self.down(now_s):
            return self._down_until_s
        if now_s < self._climb_s:
            return self._climb_s
        steps = self._steps(now_s, self._climb_s)
        return None if steps >= _STEPS else self._climb_s + (steps + 1) / _STEPS_PER_S

    def _take_down(self, now_s: float) -> None:
        if self._trial_ends_s is None:  # the last trial, if any, went well
            self._down_s = _DOWN_S
        until_s = now_s + self._down_s
        climb_s = until_s + _PROBE_S if self.unreachable else until_s
        self._down_until_s, self._trial_ends_s = until_s, climb_s + _STEPS / _STEPS_PER_S
        self._base, self._climb_s = _SHARE_TRIAL, climb_s
        self._down_s = min(self._down_s * 2.0, _DOWN_S_MAX)
        self._failures = 0

    @staticmethod
    def _steps(now_s: float, climb_s: float) -> int:
        return min(max(int((now_s - climb_s) * _STEPS_PER_S + _SLOP), 0), _STEPS)
