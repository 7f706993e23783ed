"""Fixed concurrency:  requests in flight + 1 <= the number an operator states, for the whole pool.

The rule most gateways start from. Even the best number, chosen by an oracle for each workload, reaches 0.62 of what is
possible, because a request is not a unit of anything; it is right where something outside the engines is counted in
requests, such as a licence.
"""

from tidegate.admission.decision import Reason, Rule
from tidegate.admission.limits import Limits
from tidegate.admission.load import EngineLoad, Load
from tidegate.admission.work import Work


class ConcurrencyGate:
    """Refuses while as many run as may."""

    __slots__ = ()
    always = True  # a count of the whole pool: an empty engine of it has no right of its own

    def refusal(self, work: Work, load: Load, engine: EngineLoad, limits: Limits) -> Reason | None:
        most = limits.concurrency
        if most is None or load.in_flight < most:
            return None
        return Reason(Rule.CONCURRENCY, load.in_flight + 1, most, "requests")
