"""The waiting room in front of the core: it turns the controller's verdicts into futures that streams wait on.

The controller is synchronous and told the time. The turnstile tells it, wakes it when it asks to be woken (one timer a
pool, none while nobody waits), and hands each late verdict to the stream it belongs to. Whoever enters must leave: the
booking goes back then, whatever happened in between.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from tidegate.admission.attempt import Attempt
from tidegate.admission.controller import Controller
from tidegate.admission.decision import Decision, Enqueue, Reject, Verdict
from tidegate.admission.outcome import Outcome
from tidegate.admission.work import Work
from tidegate.clock import Clock, Timer


class Passage:
    """One request between its entry and its leaving."""

    __slots__ = ("decision", "late", "work")

    def __init__(self, work: Work, decision: Decision) -> None:
        self.work = work
        self.decision = decision
        self.late: asyncio.Future[Verdict] | None = None
        if isinstance(decision, Enqueue):
            self.late = asyncio.get_running_loop().create_future()


class Turnstile:
    """Lets requests through to one pool, at once or later, or not at all."""

    def __init__(self, controller: Controller, clock: Clock) -> None:
        self.controller = controller
        self._clock = clock
        self._waiting: dict[str, asyncio.Future[Verdict]] = {}
        self._timer: Timer | None = None
        self._timer_at_s = 0.0

    def enter(self, work: Work) -> Passage:
        """Ask for passage: `decision` is final, or an Enqueue whose verdict `late` will hold. Must be left."""
        passage = Passage(work, self.controller.submit(work, self._clock.now_s()))
        if passage.late is not None:
            self._waiting[work.id] = passage.late
        if passage.late is not None or self.controller.has_verdicts:
            self._deliver()
        return passage

    def leave(self, passage: Passage) -> None:
        """The request is over or given up: its slot comes back and the next in line wakes. Safe to repeat."""
        waiting = self._waiting.pop(passage.work.id, None)
        if waiting is not None:
            waiting.cancel()
        if self.controller.release(passage.work.id, self._clock.now_s()):
            self._deliver()

    @contextmanager
    def entered(self, work: Work) -> Iterator[Passage]:
        """`enter`, and `leave` at the end of the block, come what may."""
        passage = self.enter(work)
        try:
            yield passage
        finally:
            self.leave(passage)

    def preview(self, work: Work) -> Reject | None:
        """The refusal this work would meet now for certain; books nothing."""
        refusal = self.controller.preview(work, self._clock.now_s())
        self._deliver()
        return refusal

    def refused_unread(self, attempt: Attempt | None) -> None:
        """A request was refused for what `preview` said; it never entered."""
        self.controller.refused_unread(attempt, self._clock.now_s())

    def settle(self, outcome: Outcome) -> bool:
        """Take in how a request ended; True the first time its id is seen."""
        first = self.controller.settle(outcome, self._clock.now_s())
        self._deliver()
        return first

    def drain(self) -> None:
        """No more admits: every waiter gets its verdict now."""
        self.controller.drain(self._clock.now_s())
        self._deliver()

    def tick(self) -> None:
        """Let the controller see the time: expiries, the start-up ramp, the drain rate."""
        self.controller.tick(self._clock.now_s())
        self._deliver()

    @property
    def waiting(self) -> int:
        """Streams that wait for a verdict."""
        return len(self._waiting)

    def _deliver(self) -> None:
        for verdict in self.controller.take_verdicts():
            waiting = self._waiting.pop(verdict.id, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(verdict)
        self._arm()

    def _arm(self) -> None:
        wake_s = self.controller.next_wake_s()
        if wake_s is None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            return
        if self._timer is not None:
            if self._timer_at_s <= wake_s:
                return  # it rings early enough, and then arms itself anew
            self._timer.cancel()
        self._timer_at_s = wake_s
        self._timer = self._clock.call_at(wake_s, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.tick()
