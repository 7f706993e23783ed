"""Tries of one request: a later one takes the place of one that waits, and keeps its age.

    the earlier try still waits              the later one takes its place, and it is refused: superseded
    its client left while it waited          for 10 s, the later one counts as having waited as long as it had
    it was admitted, refused or expired      the later one is a request like any other

Reason: a client that gives up after two seconds and asks again would otherwise stand twice in the queue, or be sent to
its end each time, and in overload never be served at all. Only time spent waiting counts, so leaving and coming back
gains nothing over staying. Clients refused here are told when to come back, and come to an emptier queue.

What waits is bounded by the queue; of those whose client has left, the 4,096 latest are remembered.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import NamedTuple

from tidegate.admission.attempt import Attempt
from tidegate.admission.work import Work

REMEMBERED_S = 10.0
_LEFT_MAX = 4096


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


_NONE = Before("", 0.0)


class Retries:
    """The tries that wait, and those whose client left a moment ago; every operation is O(1) amortised."""

    __slots__ = ("_left", "_same", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[Hashable, _Waiting] = {}
        self._same: dict[str, Hashable] = {}  # by id, of those that wait
        self._left: OrderedDict[Hashable, _Left] = OrderedDict()  # latest last

    def __len__(self) -> int:
        """Tries that are remembered."""
        return len(self._waiting) + len(self._left)

    def before(self, attempt: Attempt | None, now_s: float) -> Before:
        """The earlier try of this one; one that never was has waited 0 s."""
        if attempt is None or not attempt.may_follow:
            return _NONE
        waiting = self._waiting.get(attempt.same)
        if waiting is not None:
            return Before(waiting.work_id, now_s - waiting.first_s) if attempt.follows(waiting.number) else _NONE
        left = self._left.get(attempt.same)
        if left is None or now_s - left.left_s > REMEMBERED_S or not attempt.follows(left.number):
            return _NONE
        return Before("", left.waited_s)

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
        if len(self._left) > _LEFT_MAX:
            self._left.popitem(last=False)
        while self._left and now_s - next(iter(self._left.values())).left_s > REMEMBERED_S:
            self._left.popitem(last=False)
