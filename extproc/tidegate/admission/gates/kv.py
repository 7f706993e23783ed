"""KV tokens:  tokens booked + (prompt + expected completion of the request) <= share x KV tokens x engines.

Beyond it an engine preempts running sequences and computes them again. The expected completion stands for the growth to
come; one request is booked at one whole engine at most.
"""

from tidegate.admission.decision import Reason, Rule
from tidegate.admission.limits import Limits
from tidegate.admission.load import Load, capacity
from tidegate.admission.work import Work


class KvGate:
    """Refuses while the request's tokens would not find room."""

    __slots__ = ()

    def refusal(self, work: Work, load: Load, limits: Limits) -> Reason | None:
        wanted = load.kv_tokens + load.cost.kv_tokens
        tokens = capacity(limits.kv_tokens, engines=load.engines, share=load.share)
        if wanted <= tokens or load.alone:
            return None
        return Reason(Rule.KV_TOKENS, wanted, tokens, "tokens")
