"""What the guards of a whole pool share:  requests in flight + 1 <= a number, which each guard gets elsewhere."""

from abc import ABC, abstractmethod

from tidegate.admission.decision import Reason, Rule
from tidegate.admission.limits import Limits
from tidegate.admission.load import EngineLoad, Load
from tidegate.admission.work import Work


class InFlightGate(ABC):
    """Refuses while as many run as may; open where there is no number."""

    __slots__ = ()
    always = True  # a count of the whole pool: an empty engine of it has no right of its own
    rule: Rule

    @abstractmethod
    def most(self, load: Load, limits: Limits) -> float | None:
        """Requests that may be in flight, or None where that is not known."""

    def refusal(self, work: Work, load: Load, engine: EngineLoad, limits: Limits) -> Reason | None:
        most = self.most(load, limits)
        if most is None or load.in_flight + 1 <= most:
            return None
        return Reason(self.rule, load.in_flight + 1, most, "requests")
