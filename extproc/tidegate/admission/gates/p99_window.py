"""p99 window:  requests in flight + 1 <= a limit that shrinks by 10 % or grows by 5 % every 5 s (see p99_window.py).

Shrinks where the p99 of the engines' own times to the first token (of the whole answer, where it is not streamed) was
over the target, else grows. In the model it reaches 0.61 of what is possible, as much as a fixed limit chosen by an
oracle.
"""

from tidegate.admission.decision import Rule
from tidegate.admission.gates.in_flight import InFlightGate
from tidegate.admission.limits import Limits
from tidegate.admission.load import Load


class P99WindowGate(InFlightGate):
    """Refuses while the window is full."""

    __slots__ = ()
    rule = Rule.P99_WINDOW

    def most(self, load: Load, limits: Limits) -> float | None:
        return load.signals.p99_window
