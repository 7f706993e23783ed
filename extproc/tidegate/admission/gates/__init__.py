"""One gate per resource; all of them must be open."""

from tidegate.admission.gates.base import Gate
from tidegate.admission.gates.kv import KvGate
from tidegate.admission.gates.slots import SlotsGate

GATES: tuple[Gate, ...] = (SlotsGate(), KvGate())
"""The gates in force, in the order they are asked: the first that refuses gives the reason."""

__all__ = ["GATES", "Gate", "KvGate", "SlotsGate"]
