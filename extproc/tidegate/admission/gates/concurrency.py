"""Fixed concurrency:  requests in flight + 1 <= the number an operator states, for the whole pool.

The rule most gateways start from. Even the best number, chosen by an oracle for each workload, reaches 0.62 of what is
possible, because a request is not a unit of anything; it is right where something outside the engines is counted in
requests, such as a licence.
"""

from tidegate.admission.decision import Rule
from tidegate.admission.gates.in_flight import InFlightGate
from tidegate.admission.limits import Limits
from tidegate.admission.load import Load


class ConcurrencyGate(InFlightGate):
    """Refuses while as many run as may."""

    __slots__ = ()
    rule = Rule.CONCURRENCY

    def most(self, load: Load, limits: Limits) -> float | None:
        return limits.concurrency
