"""The seam: one resource that may be short.

One gate per resource, because no single number stands for them all: an engine can have slots to spare and no KV block
left, or both and a backlog of prompts that makes every first token late.
"""

from typing import Protocol

from tidegate.admission.decision import Reason
from tidegate.admission.limits import Limits
from tidegate.admission.load import EngineLoad, Load
from tidegate.admission.work import Work


class Gate(Protocol):
    """Pure: the same arguments give the same answer, and asking changes nothing.

    A gate must be open to a request that would be alone in the engine, however large, unless what it guards is not the
    engine's own (GPU memory that others take): otherwise nothing would ever end that request's wait. The caller sees to
    the first: it asks no gate about an engine that is empty, but those that are `always` asked.
    """

    always: bool

    def refusal(self, work: Work, load: Load, engine: EngineLoad, limits: Limits) -> Reason | None:
        """Why the request cannot go to this engine now, or None where nothing of this resource stands against it."""
        ...
