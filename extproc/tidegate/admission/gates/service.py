"""Service, of requests without tokens:  those that run + 1 <= share x as many as the engine works on at once.

    as many     the concurrency from which on its throughput, in expected service seconds a second, grows no more
                (see throughput_knee.py): in flight beyond it is work that the engine cannot have begun

What waits here is served in order of cost and deadline, and expires; what waits in the engine does neither, and at
twice its capacity nobody there is answered in time. Open to requests that have tokens: other gates are for those.
"""

from tidegate.admission.decision import Reason, Rule
from tidegate.admission.limits import Limits
from tidegate.admission.load import EngineLoad, Load
from tidegate.admission.work import Work


class ServiceGate:
    """Refuses while the engine has as many as it works on at once."""

    __slots__ = ()
    always = False

    def refusal(self, work: Work, load: Load, engine: EngineLoad, limits: Limits) -> Reason | None:
        if load.cost.service_s is None:
            return None
        timed = engine.timed_load()
        return None if timed.running < timed.most else Reason(Rule.SERVICE, timed.running + 1, timed.most, "requests")
