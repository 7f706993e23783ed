"""The seam: a queue discipline says who goes next, and how much goes before a newcomer.

It knows nothing of capacity: `pop_ready` asks its caller about the candidates. Whether a candidate that cannot go yet
may be passed by is the discipline's own choice, because that is what decides who can starve. Nor does it know a bound:
its caller refuses what would be one too many.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from msgspec import Struct

from tidegate.admission.decision import Verdict
from tidegate.admission.work import Work


class Waiting(Struct, frozen=True, kw_only=True, gc=False):
    """A request in the queue: since when, until when at the latest, and its cost in bottleneck seconds."""

    work: Work
    since_s: float
    expires_at_s: float
    cost_s: float


class Ahead(NamedTuple):
    """What goes before a newcomer."""

    requests: int
    cost_s: float


class Queue(Protocol):
    """A queue discipline; ids in it are unique. `len()` is the number that wait."""

    @property
    def cost_s(self) -> float:
        """Bottleneck seconds of all that wait."""
        ...

    def __len__(self) -> int: ...

    def __contains__(self, work_id: str) -> bool: ...

    def ahead(self, work: Work, cost_s: float) -> Ahead:
        """What would go before `work`, of `cost_s` bottleneck seconds, if it came now; changes nothing."""
        ...

    def overflow(self, work: Work, cost_s: float) -> Waiting | None:
        """Who should make room for `work` in a queue that is full, or None where `work` has no better claim.

        Changes nothing.
        """
        ...

    def push(self, waiting: Waiting) -> None:
        """Take one in; its id must not be in the queue."""
        ...

    def pop_ready(self, judge: Callable[[Waiting], Verdict | None]) -> Verdict | None:
        """Remove the next one that `judge` has a verdict on; that verdict, or None where nobody's turn has come.

        A request that `judge` gave a verdict is gone: it must not be asked about again.
        """
        ...

    def withdraw(self, work_id: str) -> bool:
        """Remove one that no longer wants to wait; False where it is not in the queue."""
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
