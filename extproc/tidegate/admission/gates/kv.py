"""KV tokens:  the future peak of all that runs, the request included, <= 0.95 x share x KV tokens.

    quick accept   sum (held_j + remaining_j) + p + o <= 0.95 K
    else           peak = max over k of  sum_{j <= k} held_j + k remaining_k    (see running_table.py)

Beyond it an engine preempts running sequences and computes them again: without this gate two fifths of all tokens were
wasted on long answers. Held tokens alone, as utilisation gates look at them, miss what is already on its way. The last
twentieth is for what lengths get wrong, and for the blocks that prompts and answers fill in part.
"""

from tidegate.admission.decision import Reason, Rule
from tidegate.admission.limits import Limits
from tidegate.admission.load import EngineLoad, Load
from tidegate.admission.work import Work

KV_SHARE = 0.95


class KvGate:
    """Refuses while the request's tokens would not find room at the moment when most is held."""

    __slots__ = ()
    always = False

    def refusal(self, work: Work, load: Load, engine: EngineLoad, limits: Limits) -> Reason | None:
        tokens = KV_SHARE * engine.kv_tokens_max
        if engine.kv_demand_tokens(load.cost) <= tokens:
            return None
        peak = engine.kv_peak_tokens(load.cost)
        return None if peak <= tokens else Reason(Rule.KV_TOKENS, peak, tokens, "tokens")
