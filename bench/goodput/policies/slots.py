"""Sequence slots as the only unit: as many at once as the engine has slots; the rest is rejected.

    admit while some engine has fewer in flight than slots (vLLM's max_num_seqs)

It says nothing of prompts: a few long ones fill an engine whose slots are nearly all free.
"""

from collections.abc import Mapping
from typing import Any

from bench.goodput.policies.baseline import Baseline

SLOTS = 256  # where the pool does not say


class SequenceSlots(Baseline):
    """Reject when every slot is taken."""

    status = 429

    def __init__(self, pool: Mapping[str, Any]) -> None:
        super().__init__(pool)
        self._slots = {str(engine["name"]): int(engine.get("slots", SLOTS)) for engine in pool["engines"]}

    def allows(self, now_s: float) -> bool:
        """Whether the emptiest engine has a slot."""
        name = self.engine()
        return self._per_engine[name] < self._slots[name]
