"""The seam: one resource that may be short.

One gate per resource, because no single number stands for them all: a pool can have slots to spare and no KV block
left.
"""

from typing import Protocol

from tidegate.admission.decision import Reason
from tidegate.admission.limits import Limits
from tidegate.admission.load import Load
from tidegate.admission.work import Work


class Gate(Protocol):
    """Pure: the same arguments give the same answer, and asking changes nothing.

    A gate must be monotone (what refuses a request refuses a larger one under the same load) and open to a request that
    would be alone in the pool, however large; otherwise nothing would ever end that request's wait.
    """

    def refusal(self, work: Work, load: Load, limits: Limits) -> Reason | None:
        """Why the request cannot go now, or None where nothing of this resource stands against it."""
        ...
