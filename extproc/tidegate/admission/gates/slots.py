"""Sequence slots:  sequences in flight + sequences of the request <= share x slots.

What is beyond the slots waits in the engine's own queue, where nobody orders it, expires it or answers its caller.
Slots alone are no limit worth having: an engine drowns in prompts long before 256 sequences run (ADMISSION.md: 0.14 of
what is possible).
"""

from tidegate.admission.decision import Reason, Rule
from tidegate.admission.limits import Limits
from tidegate.admission.load import EngineLoad, Load
from tidegate.admission.work import Work


class SlotsGate:
    """Refuses while no sequence slot is free."""

    __slots__ = ()
    always = False

    def refusal(self, work: Work, load: Load, engine: EngineLoad, limits: Limits) -> Reason | None:
        wanted = engine.sequences + load.cost.sequences
        slots = engine.slots
        return None if wanted <= slots else Reason(Rule.SLOTS, wanted, slots, "sequences")
