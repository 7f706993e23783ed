"""Prefill backlog:  prompt tokens without a first token / prefill rate <= share x 0.4 s, or nothing is prefilling.

Prompts queue inside the engine, first come first served, and there they can neither be put in order nor expire. Four
tenths of a second keep the engine busy between two looks and leave the rest of the budget to a queue that can. Without
this gate chat at twice the capacity gets no first token in time at all (ADMISSION.md).
"""

from tidegate.admission.decision import Reason, Rule
from tidegate.admission.limits import Limits
from tidegate.admission.load import EngineLoad, Load
from tidegate.admission.work import Work

BACKLOG_S_MAX = 0.4


class PrefillGate:
    """Refuses while the engine has prompts enough to do."""

    __slots__ = ()
    always = False

    def refusal(self, work: Work, load: Load, engine: EngineLoad, limits: Limits) -> Reason | None:
        if not engine.prefilling:
            return None
        left_s, left_s_max = engine.prefill_left_s, engine.share * BACKLOG_S_MAX
        return None if left_s <= left_s_max else Reason(Rule.PREFILL, left_s, left_s_max, "s")
