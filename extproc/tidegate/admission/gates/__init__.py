"""One gate per resource; all of those in force must be open."""

from tidegate.admission.gates.base import Gate
from tidegate.admission.gates.concurrency import ConcurrencyGate
from tidegate.admission.gates.kv import KvGate
from tidegate.admission.gates.littles_law import LittlesLawGate
from tidegate.admission.gates.memory_floor import MemoryFloorGate
from tidegate.admission.gates.p99_window import P99WindowGate
from tidegate.admission.gates.prefill import PrefillGate
from tidegate.admission.gates.service import ServiceGate
from tidegate.admission.gates.slots import SlotsGate
from tidegate.admission.gates.tpot import TpotGate
from tidegate.admission.limits import GateName

GATES: dict[GateName, Gate] = {
    GateName.SLOTS: SlotsGate(),
    GateName.KV: KvGate(),
    GateName.PREFILL: PrefillGate(),
    GateName.TPOT: TpotGate(),
    GateName.SERVICE: ServiceGate(),
    GateName.CONCURRENCY: ConcurrencyGate(),
    GateName.P99_WINDOW: P99WindowGate(),
    GateName.LITTLES_LAW: LittlesLawGate(),
    GateName.MEMORY_FLOOR: MemoryFloorGate(),
}
"""Every gate by its name, in the order they are asked: the first that refuses gives the reason.

Whether an engine is up at all is no gate of these: a pool without one has another verdict (see rules.py).
"""

__all__ = ["GATES", "Gate"]
