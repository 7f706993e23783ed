"""Memory floor:  free GPU memory >= the floor an operator states.

An inference engine takes its KV cache once, at its start, so free memory says little about it: four gigabytes of floor
are a twentieth of the KV tokens of an 80 GB GPU, which the KV gate keeps free anyway. It is right where something else
shares the GPU. Open while no engine tells how much is free; closed even to a request that would be alone, for the
memory is not taken by requests.
"""

from tidegate.admission.decision import Reason, Rule
from tidegate.admission.limits import Limits
from tidegate.admission.load import EngineLoad, Load
from tidegate.admission.work import Work


class MemoryFloorGate:
    """Refuses while too little GPU memory is free."""

    __slots__ = ()
    always = True

    def refusal(self, work: Work, load: Load, engine: EngineLoad, limits: Limits) -> Reason | None:
        free_mib, floor_mib = load.signals.memory_free_mib, limits.memory_floor_mib
        if floor_mib is None or free_mib is None or free_mib >= floor_mib:
            return None
        return Reason(Rule.MEMORY_FLOOR, free_mib, floor_mib, "MiB")
