"""Readings of several engines as one, for a book that stands for all of them because Envoy chooses among them.

    running, waiting                 sums; None unless every engine has said it lately
    steps, tokens, preemptions,
      rejections                     sums of what each has counted since it was first read
    kv_usage, slots, kv_tokens_max   means of those that say
    memory_free_mib                  the least

Counters begin at nothing here: an engine that joins brings the count of its whole life, one that leaves or starts anew
takes it away, and neither is work done now. A sum of sequences without one of the engines would look like requests that
are gone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean

from tidegate.admission.reading import EngineReading

_COUNTERS = ("steps_total", "tokens_total", "preemptions_total", "rejections_total")


class PoolReading:
    """The counters of a pool's engines, summed."""

    __slots__ = ("_counted", "_last")

    def __init__(self) -> None:
        self._last: dict[str, EngineReading] = {}  # of the engines there are
        self._counted: dict[str, float] = {}

    def keep(self, addresses: Iterable[str]) -> None:
        """The pool now has these engines and no others."""
        kept = set(addresses)
        self._last = {address: reading for address, reading in self._last.items() if address in kept}

    def take(self, address: str, reading: EngineReading) -> None:
        """Add what an engine has counted since its reading before."""
        before = self._last.get(address)
        self._last[address] = reading
        for counter in _COUNTERS:
            total = getattr(reading, counter)
            if total is None:
                continue
            past = None if before is None else getattr(before, counter)
            gained = 0.0 if past is None else total - past
            self._counted[counter] = self._counted.get(counter, 0.0) + max(gained, 0.0)

    def whole(self, fresh: Mapping[str, EngineReading], engines: int) -> EngineReading:
        """The pool as one engine.

        Args:
            fresh: the readings that are not stale.
            engines: how many engines there are.
        """
        readings = list(fresh.values())
        all_said = len(readings) == engines
        return EngineReading(
            running=_sum([each.running for each in readings]) if all_said else None,
            waiting=_sum([each.waiting for each in readings]) if all_said else None,
            slots=_whole(_of_those_that_say([each.slots for each in readings], fmean)),
            kv_usage=_of_those_that_say([each.kv_usage for each in readings], fmean),
            kv_tokens_max=_whole(_of_those_that_say([each.kv_tokens_max for each in readings], fmean)),
            steps_total=self._counted.get("steps_total") if all_said else None,
            tokens_total=self._counted.get("tokens_total") if all_said else None,
            preemptions_total=self._counted.get("preemptions_total"),
            rejections_total=self._counted.get("rejections_total"),
            memory_free_mib=_of_those_that_say([each.memory_free_mib for each in readings], min),
        )


def _sum(figures: Sequence[int | None]) -> int | None:
    said = [figure for figure in figures if figure is not None]
    return sum(said) if said and len(said) == len(figures) else None


def _of_those_that_say(figures: Sequence[float | None], combined: Callable[[Sequence[float]], float]) -> float | None:
    said = [figure for figure in figures if figure is not None]
    return combined(said) if said else None


def _whole(figure: float | None) -> int | None:
    return None if figure is None else round(figure)
