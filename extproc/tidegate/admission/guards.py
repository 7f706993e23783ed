"""The rules people start from, kept as guards: what they have learned of the pool, for their gates to compare with.

Only the guards in force are fed. Their input is the engines' own time: a wait in this queue is none of theirs, and a
window that is fed with it closes itself (0.1 requests a second in the model).
"""

from tidegate.admission.cost import Cost
from tidegate.admission.limits import GateName, Limits
from tidegate.admission.littles_law import LittlesLaw
from tidegate.admission.load import NO_SIGNALS, Signals
from tidegate.admission.outcome import Ending, Outcome
from tidegate.admission.p99_window import P99Window
from tidegate.admission.work import Work

_WINDOW_START, _WINDOW_MAX = 64.0, 65_536.0


class Guards:
    """State of the p99 window and of Little's law, and the latest free GPU memory."""

    def __init__(self, limits: Limits) -> None:
        self._littles_law: LittlesLaw | None = None
        self._p99_window: P99Window | None = None
        self._in_flight = 0
        self.memory_free_mib: float | None = None
        self.reconfigure(limits)

    def reconfigure(self, limits: Limits) -> None:
        """Put the named guards in force; one that is named anew starts afresh, and so does one with another target."""
        gates = limits.gates
        if GateName.LITTLES_LAW not in gates:
            self._littles_law = None
        elif self._littles_law is None:
            self._littles_law = LittlesLaw()
        if GateName.P99_WINDOW not in gates:
            self._p99_window = None
        elif self._p99_window is None or self._p99_window.target_s != limits.p99_target_s:
            self._p99_window = P99Window(limits.p99_target_s, _WINDOW_START, ceiling=_WINDOW_MAX)
        self._idle = self._littles_law is None and self._p99_window is None

    def watch(self, *, in_flight: int, now_s: float) -> None:
        """So many requests run from now on."""
        if self._littles_law is not None:
            self._littles_law.watch(busy=in_flight > 0, now_s=now_s)
        self._in_flight = in_flight
        if self._p99_window is not None:
            self._p99_window.roll(now_s)

    def learn(self, outcome: Outcome, now_s: float) -> None:
        """Take in a finished request."""
        if self._idle or outcome.ending is not Ending.COMPLETE:
            return
        if self._littles_law is not None:
            self._littles_law.completed(now_s)
        latency_s = outcome.ttft_s if outcome.stream else outcome.e2e_s
        if self._p99_window is not None and latency_s is not None:
            self._p99_window.sample(latency_s, self._in_flight)

    def signals(self, work: Work, cost: Cost, now_s: float) -> Signals:
        """What the guards' gates compare with, for this request."""
        if self._idle and self.memory_free_mib is None:
            return NO_SIGNALS
        window, law = self._p99_window, self._littles_law
        each = max(cost.sequences, 1)
        target_s = work.ttft_budget_s + cost.completion_tokens / each * work.tpot_target_s
        return Signals(
            p99_window=None if window is None else window.limit,
            littles_law=None if law is None else law.limit(target_s, now_s),
            memory_free_mib=self.memory_free_mib,
        )
