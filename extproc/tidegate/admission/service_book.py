"""The requests without tokens that one engine runs, or `width` that share the load: vision, ranking, scores.

    room        share x knee x width     requests, at least 1      (see throughput_knee.py)
    trust       1 where n / width <= quiet, else 0.05;   n requests in it, the newest included
                1 / (n / width)^2, at least 0.05, until the knee was found

Such a request has no prompt to prefill and no token to wait for: all that is known of it is how long it should take,
and nothing of it is seen before its end. What is reckoned is therefore only how many there are, and what came of them.
Trust is for whoever learns from its time afterwards: in a crowd a part of it is queueing.
"""

from collections.abc import Mapping

from tidegate.admission.load import TimedLoad
from tidegate.admission.outcome import Ending
from tidegate.admission.records import as_record
from tidegate.admission.throughput_knee import ThroughputKnee

TRUST_MIN = 0.05
_TELLING = frozenset({Ending.COMPLETE, Ending.CLIENT_CANCELLED, Ending.ENGINE_REFUSED})
# not a fault, which is the health's business, nor a request that the engine would not begin


class TimedRow:
    """One such request.

    Attributes:
        service_s: expected service time.
        level: of the engine's concurrency when it ended; None while it runs.
        ending: how it ended, once that is known.
    """

    __slots__ = ("ending", "level", "service_s")

    def __init__(self, service_s: float) -> None:
        self.service_s = service_s
        self.level: int | None = None
        self.ending: Ending | None = None


class ServiceBook:
    """Time is told, and never goes back."""

    __slots__ = ("_knee", "_now_s", "_rows", "width")

    def __init__(self, *, width: int, now_s: float) -> None:
        self.width = width
        self._knee = ThroughputKnee()
        self._rows: dict[str, TimedRow] = {}
        self._now_s = now_s

    def __len__(self) -> int:
        """Requests that run."""
        return len(self._rows)

    def __contains__(self, work_id: str) -> bool:
        return work_id in self._rows

    @property
    def slots_each(self) -> int:
        """Requests that one engine works on at once, at its whole share."""
        return self._knee.slots

    def load(self, share: float) -> TimedLoad:
        """What runs and may run at a share of the capacity."""
        each = max((len(self._rows) + 1) / self.width, 1.0)
        if self._knee.quiet:
            trust = 1.0 if each <= self._knee.quiet else TRUST_MIN
        else:
            trust = max(1.0 / each**2, TRUST_MIN)
        most = max(1, int(share * self._knee.slots * self.width))
        return TimedLoad(running=len(self._rows), most=most, trust=trust)

    def advance(self, now_s: float) -> None:
        """Let the time pass."""
        if self._rows:
            self._knee.passed(self._level, (now_s - self._now_s) * self.width)
        self._now_s = now_s

    def admit(self, work_id: str, service_s: float, now_s: float) -> None:
        """A request is sent to it."""
        self.advance(now_s)
        self._rows[work_id] = TimedRow(service_s)

    def release(self, work_id: str, now_s: float) -> TimedRow | None:
        """It is over, or given up; None where it does not run here."""
        self.advance(now_s)
        row = self._rows.get(work_id)
        if row is None:
            return None
        row.level = self._level
        del self._rows[work_id]
        self._learn(row, now_s)
        return row

    def row(self, work_id: str) -> TimedRow | None:
        """What is known of one that runs."""
        return self._rows.get(work_id)

    def settle(self, row: TimedRow, ending: Ending, now_s: float) -> None:
        """How it ended is known; told once, before its release or after."""
        row.ending = ending
        self._learn(row, now_s)

    def dump(self) -> dict[str, object]:
        """What was learned, as a plain record."""
        return {"knee": self._knee.dump()}

    def restore(self, record: Mapping[str, object]) -> None:
        """Take over what was learned; ValueError where it is damaged."""
        if "knee" in record:
            self._knee.restore(as_record(record["knee"]))

    def _learn(self, row: TimedRow, now_s: float) -> None:
        """Once both are known, how it ended and when: what the engine got done."""
        if row.level is not None and row.ending in _TELLING:
            self._knee.ended(row.level, row.service_s if row.ending is Ending.COMPLETE else 0.0, now_s)

    @property
    def _level(self) -> int:
        return self._knee.level(max(len(self._rows) / self.width, 1.0))
