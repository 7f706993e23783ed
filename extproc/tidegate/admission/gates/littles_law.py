"""Little's law:  requests in flight + 1 <= L = X W (see littles_law.py).

X is the rate of completions, W the time a request of this kind may take. More than L in flight cannot all end in time
at the rate they have been ending. As the only limit it reaches 0.35 of what is possible: X follows the load as much as
it follows the engines. Keep it as a clamp against absurd numbers.
"""

from tidegate.admission.decision import Reason, Rule
from tidegate.admission.limits import Limits
from tidegate.admission.load import EngineLoad, Load
from tidegate.admission.work import Work


class LittlesLawGate:
    """Refuses while more are in flight than complete in time."""

    __slots__ = ()
    always = True  # a count of the whole pool: an empty engine of it has no right of its own

    def refusal(self, work: Work, load: Load, engine: EngineLoad, limits: Limits) -> Reason | None:
        most = load.signals.littles_law
        if most is None or load.in_flight + 1 <= most:
            return None
        return Reason(Rule.LITTLES_LAW, load.in_flight + 1, most, "requests")
