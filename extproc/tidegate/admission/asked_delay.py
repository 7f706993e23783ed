"""How long the engines of a pool have asked their callers to stay away.

    until     max(until, now + Retry-After of the engine's own 429 or 503), its seconds bounded by 30
    left      ceil(until - now), and 0 once that has passed

An engine that names a delay knows better than the drain rate when it will have room, so whatever else is refused
meanwhile should not come back sooner: of two delays the larger counts. The bound is that of our own: client libraries
heed no delay much longer, and one strange answer must not send everybody away for an hour. What is left counts in whole
seconds, as the header does, or the client that is told of it would come back within the last of them.
"""

from math import ceil, inf

from tidegate.admission.outcome import Ending, Outcome

ASKED_DELAY_S_MAX = 30.0


class AskedDelay:
    """The delay in force in one pool."""

    __slots__ = ("_until_s",)

    def __init__(self) -> None:
        self._until_s = -inf

    def learn(self, outcome: Outcome, now_s: float) -> None:
        """Take in what an outcome says; the delay in a refusal of ours is none of the engine's."""
        if outcome.ending is Ending.ENGINE_REFUSED and outcome.retry_after_s is not None:
            self._until_s = max(self._until_s, now_s + min(outcome.retry_after_s, ASKED_DELAY_S_MAX))

    def left_s(self, now_s: float) -> float:
        """Whole seconds that are left of it, from 0 to 30."""
        return 0.0 if now_s >= self._until_s else min(float(ceil(self._until_s - now_s)), ASKED_DELAY_S_MAX)
