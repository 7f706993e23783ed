"""Little's law:  requests in flight + 1 <= L = X W (see littles_law.py).

X is the rate of completions, W the time a request of this kind may take. More than L in flight cannot all end in time
at the rate they have been ending. As the only limit it reaches 0.35 of what is possible: X follows the load as much as
it follows the engines. Keep it as a clamp against absurd numbers.
"""

from tidegate.admission.decision import Rule
from tidegate.admission.gates.in_flight import InFlightGate
from tidegate.admission.limits import Limits
from tidegate.admission.load import Load


class LittlesLawGate(InFlightGate):
    """Refuses while more are in flight than complete in time."""

    __slots__ = ()
    rule = Rule.LITTLES_LAW

    def most(self, load: Load, limits: Limits) -> float | None:
        return load.signals.littles_law
