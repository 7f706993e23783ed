"""Tries of one request: a later one takes the place of one that waits, and keeps its age.

    the earlier try still waits              the later one takes its place, and it is refused: superseded
    its client left while it waited          for 10 s, the later one counts as having waited as long as it had
    it was admitted, refused or expired      the later one is a request like any other

Reason: a client that gives up after two seconds and asks again would otherwise stand twice in the queue, or be sent to
its end each time, and in overload never be served at all. Only time spent waiting counts, so leaving and coming back
gains nothing over staying. Clients refused here are told when to come back, and come to an emptier queue.

Where the client names its request, the name decides. Where it only counts its tries, two requests of one address with
the same body may just look alike, and the one that waits must not be refused for another's retry. So each try that
ended without a whole answer explains one retry from its address, for a minute, and only a retry that nothing else
explains can come from the one that waits: its client has gone, and nobody has said so yet.

What waits is bounded by the queue; of those whose client has left, and of addresses with unexplained ends, the 4,096
latest are remembered.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import NamedTuple

from tidegate.admission.attempt import Attempt
from tidegate.admission.work import Work

REMEMBERED_S = 10.0
EXPLAINS_S = 60.0  # twice what a client is told to wait at the most
_REMEMBERED_MAX = 4096


class Before(NamedTuple):
    """An earlier try: its id if it still waits, else an empty one, and how long it has waited."""

    work_id: str
    waited_s: float


class _Waiting(NamedTuple):
    work_id: str
    number: int | None
    first_s: float


class _Left(NamedTuple):
    number: int | None
    waited_s: float
    left_s: float


class _Ends(NamedTuple):
    tries: int
    latest_s: float


_NONE = Before("", 0.0)


class Retries:
    """The tries that wait, and those whose client left a moment ago; every operation is O(1) amortised."""

    __slots__ = ("_ends", "_left", "_same", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[Hashable, _Waiting] = {}
        self._same: dict[str, Hashable] = {}  # by id, of those that wait
        self._left: OrderedDict[Hashable, _Left] = OrderedDict()  # latest last
        self._ends: OrderedDict[Hashable, _Ends] = OrderedDict()  # by address, latest last

    def __len__(self) -> int:
        """Tries and ends that are remembered."""
        return len(self._waiting) + len(self._left) + len(self._ends)

    def before(self, attempt: Attempt | None, now_s: float) -> Before:
        """The earlier try of this one, which is taken for it and forgotten; one that never was has waited 0 s."""
        if attempt is None or not attempt.may_follow:
            return _NONE
        left = self._left.get(attempt.same)
        if left is not None and attempt.follows(left.number):
            del self._left[attempt.same]
            if now_s - left.left_s <= REMEMBERED_S:
                return Before("", left.waited_s)
        if self._explained(attempt, now_s):
            return _NONE
        waiting = self._waiting.get(attempt.same)
        if waiting is None or not attempt.follows(waiting.number):
            return _NONE
        return Before(waiting.work_id, now_s - waiting.first_s)

    def ended(self, attempt: Attempt | None, now_s: float) -> None:
        """A try has ended without a whole answer, other than by its client's leaving while it waited."""
        if attempt is None or attempt.number is None:
            return
        ends = self._ends.pop(attempt.client, None)
        fresh = ends is None or now_s - ends.latest_s > EXPLAINS_S
        self._ends[attempt.client] = _Ends(1 if ends is None or fresh else ends.tries + 1, now_s)
        if len(self._ends) > _REMEMBERED_MAX:
            self._ends.popitem(last=False)

    def waits(self, work: Work, first_s: float) -> None:
        """`work` begins to wait, and counts as waiting since `first_s`; of two that look alike the first is known."""
        attempt = work.attempt
        if attempt is None or attempt.same in self._waiting:
            return
        self._left.pop(attempt.same, None)
        self._waiting[attempt.same] = _Waiting(work.id, attempt.number, first_s)
        self._same[work.id] = attempt.same

    def done(self, work_id: str) -> None:
        """It has its verdict."""
        same = self._same.pop(work_id, None)
        if same is not None:
            del self._waiting[same]

    def left(self, work_id: str, now_s: float) -> None:
        """Its client left while it waited."""
        same = self._same.pop(work_id, None)
        if same is None:
            return
        waiting = self._waiting.pop(same)
        self._left[same] = _Left(waiting.number, now_s - waiting.first_s, now_s)
        if len(self._left) > _REMEMBERED_MAX:
            self._left.popitem(last=False)
        while self._left and now_s - next(iter(self._left.values())).left_s > REMEMBERED_S:
            self._left.popitem(last=False)

    def _explained(self, attempt: Attempt, now_s: float) -> bool:
        """Whether an end explains this retry; it explains no other then."""
        ends = self._ends.get(attempt.client) if attempt.number is not None else None
        if ends is None:
            return False
        if ends.tries > 1:
            self._ends[attempt.client] = _Ends(ends.tries - 1, ends.latest_s)
        else:
            del self._ends[attempt.client]
        return now_s - ends.latest_s <= EXPLAINS_S
