"""Sequence slots:  sequences in flight + sequences of the request <= share x slots x engines."""

from tidegate.admission.decision import Reason, Rule
from tidegate.admission.limits import Limits
from tidegate.admission.load import Load, capacity
from tidegate.admission.work import Work


class SlotsGate:
    """Refuses while no sequence slot is free: an engine would only queue what is beyond them."""

    __slots__ = ()

    def refusal(self, work: Work, load: Load, limits: Limits) -> Reason | None:
        wanted = load.sequences + load.cost.sequences
        slots = capacity(limits.slots, engines=load.engines, share=load.share)
        if wanted <= slots or load.alone:
            return None
        return Reason(Rule.SLOTS, wanted, slots, "sequences")
