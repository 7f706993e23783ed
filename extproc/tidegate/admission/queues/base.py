"""The seam: a queue says who goes next, and how much goes before a newcomer.

It knows nothing of capacity: `pop_ready` asks its caller about the candidate. Whether one that cannot go yet may be
passed by is the queue's own choice, because that is what decides who can starve. Nor does it know a bound: its caller
refuses what would be one too many, or withdraws the one that `overflow` names.

It is told of every request that is dispatched, also of those that never waited, and of what they turned out to cost:
only so can it be fair to those who do wait.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from msgspec import Struct

from tidegate.admission.decision import Verdict
from tidegate.admission.work import Work


class Waiting(Struct, frozen=True, kw_only=True, gc=False):
    """A request in the queue.

    Attributes:
        since_s: when it came; `expires_at_s`: how long it may wait at the latest.
        first_s: since when it counts as waiting; before `since_s` where it is another try of one that had waited.
        cost_s: its cost in bottleneck seconds.
    """

    work: Work
    since_s: float
    first_s: float
    expires_at_s: float
    cost_s: float


class Ahead(NamedTuple):
    """What goes before a newcomer."""

    requests: int
    cost_s: float


class Queue(Protocol):
    """Requests that wait; ids in it are unique. `len()` is their number."""

    @property
    def cost_s(self) -> float:
        """Bottleneck seconds of all that wait."""
        ...

    def __len__(self) -> int: ...

    def __contains__(self, work_id: str) -> bool: ...

    def ahead(self, work: Work, *, cost_s: float, first_s: float, now_s: float) -> Ahead:
        """What would go before `work`, of `cost_s` bottleneck seconds, if it came now; changes nothing.

        `first_s` is since when it would count as waiting.

        No requests means that it would be the next in turn.
        """
        ...

    def overflow(self, work: Work, *, cost_s: float, first_s: float) -> Waiting | None:
        """Who should make room for `work` in a queue that is full, or None where `work` has no better claim.

        Changes nothing.
        """
        ...

    def push(self, waiting: Waiting) -> None:
        """Take one in; its id must not be in the queue."""
        ...

    def pop_ready(self, judge: Callable[[Waiting], Verdict | None], now_s: float) -> Verdict | None:
        """Remove the next one that `judge` has a verdict on; that verdict, or None where nobody's turn has come.

        A request that `judge` gave a verdict is gone: it must not be asked about again. Who was admitted is charged by
        the caller, within `judge`.
        """
        ...

    def withdraw(self, work_id: str) -> Waiting | None:
        """Remove one that no longer wants to wait; None where it is not in the queue."""
        ...

    def expire(self, now_s: float) -> list[Waiting]:
        """Remove those whose time is up, earliest first."""
        ...

    def next_expiry_s(self) -> float | None:
        """When the next one's time is up; None where nobody waits."""
        ...

    def clear(self) -> list[Waiting]:
        """Remove all, in the order they came."""
        ...

    def charge(self, work: Work, cost_s: float, now_s: float) -> None:
        """`work` was dispatched, from the queue or past it, and is expected to cost `cost_s` bottleneck seconds."""
        ...

    def correct(self, tenant: str, weight: int, cost_s: float) -> None:
        """What `tenant` was charged for at `weight` cost `cost_s` more than it was charged; less where negative."""
        ...
