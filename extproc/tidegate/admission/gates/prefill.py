"""Prefill backlog:  seconds of prompts without a first token <= share x limit, or nothing is prefilling.

    limit = min(B / 5, max(0.4 s, 5 t(MB))), at least t(MB)       B the request's TTFT budget, t(MB) a full step

Prompts queue inside the engine, first come first served, and there they can neither be put in order nor expire. Four
tenths of a second keep the engine busy between two looks and leave the rest of the usual budget of 2 s to a queue that
can; a tighter budget leaves less to spend, and an engine of long steps needs more to fill them. Without this gate chat
at twice the capacity gets no first token in time at all (ADMISSION.md).
"""

from tidegate.admission.decision import Reason, Rule
from tidegate.admission.limits import Limits
from tidegate.admission.load import EngineLoad, Load
from tidegate.admission.work import Work

_BUDGET_SHARE = 0.2
_BACKLOG_S, _BACKLOG_STEPS = 0.4, 5.0


def backlog_s_max(ttft_budget_s: float, step_s: float) -> float:
    """Seconds of prompts that an engine may have, for a request of this budget, where a full step takes `step_s`."""
    return max(min(_BUDGET_SHARE * ttft_budget_s, max(_BACKLOG_S, _BACKLOG_STEPS * step_s)), step_s)


class PrefillGate:
    """Refuses while the engine has prompts enough to do."""

    __slots__ = ()
    always = False

    def refusal(self, work: Work, load: Load, engine: EngineLoad, limits: Limits) -> Reason | None:
        if not engine.prefilling:
            return None
        left_s = engine.prefill_left_s
        left_s_max = engine.share * backlog_s_max(work.ttft_budget_s, engine.tpot_s(joining=0, prefill=True))
        return None if left_s <= left_s_max else Reason(Rule.PREFILL, left_s, left_s_max, "s")
