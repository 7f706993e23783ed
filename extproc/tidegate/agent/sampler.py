"""Looks in a thread of its own, so that a driver that hangs holds up nothing but the next look.

While a GPU is being lost a call into the driver can take seconds, or never return. Pages read the last look, which
never waits for anything, and say how old it is. A look that took longer than the interval is not made up for. The
thread dies with the process: nobody can end a call into the kernel.
"""

import logging
import threading
from collections.abc import Callable

from msgspec import Struct

from tidegate.agent.changes import Changes
from tidegate.agent.records import STALE_S, NodeState, Sample
from tidegate.clock import Clock

log = logging.getLogger(__name__)


class Seen(Struct, frozen=True, kw_only=True):
    """The last look, as a page finds it.

    Attributes:
        state: the look's, or stuck.
        age_s: since it began, in seconds.
    """

    sample: Sample
    state: NodeState
    age_s: float

    @property
    def fresh(self) -> bool:
        """Whether its figures say something of now."""
        return self.state is NodeState.OK and self.age_s <= STALE_S


class Sampler:
    """Calls `look` every `interval_s` seconds, until it is stopped.

    Args:
        look: takes the clock's seconds; whatever it raises becomes a failed sample.
        close: called by the thread after its last look.
    """

    def __init__(
        self, look: Callable[[float], Sample], close: Callable[[], None], *, clock: Clock, interval_s: float
    ) -> None:
        self._look = look
        self._close = close
        self._clock = clock
        self._interval_s = interval_s
        self._stopping = threading.Event()
        self._sample = Sample(state=NodeState.STARTING, taken_s=clock.now_s())
        self._round_s = clock.now_s()
        self._changes = Changes(log)
        self._broken = False
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self.looks = 0

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self, timeout_s: float = 1.0) -> None:
        """Ask the thread to end, and wait for at most `timeout_s`."""
        self._stopping.set()
        self._thread.join(timeout_s)

    def seen(self) -> Seen:
        """The last look; never waits."""
        now_s = self._clock.now_s()
        sample = self._sample
        stuck = now_s - self._round_s > STALE_S
        return Seen(
            sample=sample,
            state=NodeState.STUCK if stuck else sample.state,
            age_s=max(0.0, now_s - sample.taken_s),
        )

    def _run(self) -> None:
        due_s = self._clock.now_s()
        while not self._stopping.wait(max(0.0, due_s - self._clock.now_s())):
            began_s = self._clock.now_s()
            self._sample = self._looked(began_s)
            self.looks += 1
            self._round_s = now_s = self._clock.now_s()
            self._changes.tell(self._sample, now_s)
            if now_s - began_s > STALE_S:
                log.warning("the driver took %.1f s to answer", now_s - began_s)
            due_s = max(due_s + self._interval_s, now_s + self._interval_s / 2)
        self._close()

    def _looked(self, now_s: float) -> Sample:
        try:
            sample = self._look(now_s)
        except Exception as error:  # a fault of ours: pages must go on, and say so
            if not self._broken:
                log.exception("cannot look at the GPUs")
            self._broken = True
            return Sample(state=NodeState.FAILED, detail=f"{type(error).__name__}: {error}", taken_s=now_s)
        self._broken = False
        return sample
