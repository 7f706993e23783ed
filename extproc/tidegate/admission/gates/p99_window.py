"""p99 window:  requests in flight + 1 <= a limit that shrinks by 10 % or grows by 5 % every 5 s (see p99_window.py).

Shrinks where the p99 of the engines' own times to the first token (of the whole answer, where it is not streamed) was
over the target, else grows. In the model it reaches 0.61 of what is possible, as much as a fixed limit chosen by an
oracle.
"""

from tidegate.admission.decision import Reason, Rule
from tidegate.admission.limits import Limits
from tidegate.admission.load import EngineLoad, Load
from tidegate.admission.work import Work


class P99WindowGate:
    """Refuses while the window is full."""

    __slots__ = ()
    always = True  # a count of the whole pool: an empty engine of it has no right of its own

    def refusal(self, work: Work, load: Load, engine: EngineLoad, limits: Limits) -> Reason | None:
        most = load.signals.p99_window
        if most is None or load.in_flight + 1 <= most:
            return None
        return Reason(Rule.P99_WINDOW, load.in_flight + 1, most, "requests")
