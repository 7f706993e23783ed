"""Time per output token:  prompts are let in no faster than decoding can bear.

    binding   where a step with a full prefill chunk takes more than 0.85 of the objective
    rate      R = (1 - t(n + 1, 0, kv) / (0.85 objective)) / th1      prompt tokens a second
    refused   where R <= 0, or the bucket is empty: it fills at R, up to a quarter of a second's worth, and an admitted
              prompt is taken out of it whole, so that it may go into debt

Every sequence that decodes waits for the chunk that shares its step. A long answer averages that out, so it is the rate
of prompts that counts and not the single step.
"""

from math import inf

from tidegate.admission.decision import Reason, Rule
from tidegate.admission.limits import Limits
from tidegate.admission.load import EngineLoad, Load
from tidegate.admission.work import Work

PACE_SHARE = 0.85
"""Of the objective: the rest is for what the model of the engine gets wrong."""


class TpotGate:
    """Refuses while more prompts would make running answers too slow."""

    __slots__ = ()
    always = False

    def refusal(self, work: Work, load: Load, engine: EngineLoad, limits: Limits) -> Reason | None:
        tokens_per_s, saved_tokens = engine.prefill_allowance(work.tpot_target_s)
        if tokens_per_s == inf or (tokens_per_s > 0.0 and saved_tokens > 0.0):
            return None
        step_s = engine.tpot_s(joining=load.cost.sequences, prefill=tokens_per_s > 0.0)
        return Reason(Rule.TPOT, step_s, PACE_SHARE * work.tpot_target_s, "s")
