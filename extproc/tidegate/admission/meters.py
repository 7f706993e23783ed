"""What the engines of a pool last said of themselves, how old that is, and what share of its limits each gets for it.

                                       share                     what the reading is good for
    read within the last 5 s (`-ms`)   1, or 0 where not ready   everything
    older, and `tidegate-stale` is
      open                             1                         nothing: the books alone, no memory floor
      degrade                          0.9                       nothing
      hold                             as when last read         taken as still true
      closed                           0                         the memory floor
    never read                         as `degrade`; as `open`, where that is the word, or `hold`
      and the word is `closed`         0, from 30 s after a poll failed although it had requests

A healthy engine is read every second, so a late page or three change nothing. An engine that was never read is no
engine that fell silent: the gauges of some (TGI, Ray Serve, TensorRT-LLM) begin with their first request, and an engine
that gets none until it is read would never be. The same goes for one that was away and is back with half a page.
"""

from collections.abc import Iterable, Iterator
from math import inf

from tidegate.admission.limits import Limits, Stale
from tidegate.admission.pool_reading import PoolReading
from tidegate.admission.reading import EngineReading

_DEGRADED_SHARE = 0.9
_TRIAL_S = 30.0
_SUM_EVERY_S = 1.5


class _Meter:
    """One engine that should say how it is."""

    __slots__ = ("began_s", "read_s", "reading", "tried_s")

    def __init__(self, now_s: float) -> None:
        self.began_s = now_s
        self.reading: EngineReading | None = None
        self.read_s = 0.0
        self.tried_s: float | None = None  # since when it has had requests and could not be read, never having been

    @property
    def since_s(self) -> float:
        """Since when nothing has been heard of it."""
        return self.began_s if self.reading is None else self.read_s


class Meters:
    """One meter an engine, by address; without any, nothing is expected of anybody.

    Every figure is as of `advance`'s time or of the reading that came last.
    """

    __slots__ = ("_limits", "_meters", "_now_s", "_read", "_sum", "_summed_s")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._meters: dict[str, _Meter] = {}
        self._sum = PoolReading()
        self._read: set[str] = set()  # since they were summed
        self._summed_s = self._now_s = -inf

    def __len__(self) -> int:
        return len(self._meters)

    def __contains__(self, address: str) -> bool:
        return address in self._meters

    def reconfigure(self, limits: Limits) -> None:
        """Take over what `Limits` say of stale readings."""
        self._limits = limits

    def advance(self, now_s: float) -> None:
        """It is so late now."""
        self._now_s = now_s

    def follow(self, addresses: Iterable[str], now_s: float) -> None:
        """These engines should be heard of from now on, and no others; those that stay keep their readings."""
        self._now_s = now_s
        self._meters = {address: self._meters.get(address) or _Meter(now_s) for address in addresses}
        self._sum.keep(self._meters)
        self._read.intersection_update(self._meters)

    def take(self, address: str, reading: EngineReading, now_s: float) -> None:
        """An engine that is followed has said how it is."""
        self._now_s = now_s
        meter = self._meters[address]
        meter.reading, meter.read_s, meter.tried_s = reading, now_s, None
        self._sum.take(address, reading)
        self._read.add(address)

    def missed(self, address: str, now_s: float, *, busy: bool, began_anew: bool) -> None:
        """It could not be read; `busy`: it had requests, `began_anew`: it is another than the one that was read."""
        self._now_s = now_s
        meter = self._meters.get(address)
        if meter is None:
            return
        if began_anew:
            meter = self._meters[address] = _Meter(now_s)
        if busy and meter.reading is None and meter.tried_s is None:
            meter.tried_s = now_s

    def whole(self) -> EngineReading | None:
        """All as one engine, once all have been read since the last time, or after 1.5 s; None before."""
        held = self._limits.stale is Stale.HOLD
        fresh = {address: meter.reading for address, meter in self._meters.items() if held or self._is_fresh(meter)}
        said = {address: reading for address, reading in fresh.items() if reading is not None}
        if not said or (not said.keys() <= self._read and self._now_s < self._summed_s + _SUM_EVERY_S):
            return None
        self._read.clear()
        self._summed_s = self._now_s
        return self._sum.whole(said, len(self._meters))

    def share(self, address: str) -> float:
        """Share of its limits that an engine may use; 1 where nothing is expected of it."""
        meter = self._meters.get(address)
        return 1.0 if meter is None else self._share(meter)

    def pool_share(self) -> float:
        """The same of all engines as one."""
        if not self._meters:
            return 1.0
        return sum(self._share(meter) for meter in self._meters.values()) / len(self._meters)

    def stale(self) -> Iterator[str]:
        """Engines that have not been read for too long, or never, within the time that is given to them."""
        return (address for address, meter in self._meters.items() if not self._is_fresh(meter))

    def is_blind(self, address: str = "") -> bool:
        """Whether the reading of an engine, or of any where none is named, is of no use any more."""
        if self._limits.stale is Stale.HOLD:
            return False
        if not address:
            return any(not self._is_fresh(meter) for meter in self._meters.values())
        meter = self._meters.get(address)
        return meter is not None and not self._is_fresh(meter)

    def memory_free_mib(self) -> float | None:
        """Free memory of the GPU that has the least; None where no engine tells."""
        kept = self._limits.stale in {Stale.HOLD, Stale.CLOSED}
        said = (meter.reading for meter in self._meters.values() if kept or self._is_fresh(meter))
        free = (reading.memory_free_mib for reading in said if reading is not None)
        return min((mib for mib in free if mib is not None), default=None)

    def next_change_s(self) -> float | None:
        """When time alone changes a share next; None where it changes none."""
        moments = (moment for meter in self._meters.values() for moment in self._moments(meter))
        return min((moment for moment in moments if moment > self._now_s), default=None)

    def readings(self) -> Iterator[tuple[str, EngineReading | None, float]]:
        """Each engine's address, its last reading and the seconds since; since it joined where there is none."""
        return ((address, meter.reading, self._now_s - meter.since_s) for address, meter in self._meters.items())

    def _moments(self, meter: _Meter) -> Iterator[float]:
        yield meter.since_s + self._limits.stale_after_s
        if meter.tried_s is not None:
            yield meter.tried_s + _TRIAL_S

    def _is_fresh(self, meter: _Meter) -> bool:
        return self._now_s < meter.since_s + self._limits.stale_after_s

    def _share(self, meter: _Meter) -> float:
        stale, reading = self._limits.stale, meter.reading
        if self._is_fresh(meter) or stale is Stale.HOLD:
            return 1.0 if reading is None or reading.ready else 0.0
        if stale is Stale.OPEN:
            return 1.0
        if stale is Stale.CLOSED and (reading is not None or self._was_tried(meter)):
            return 0.0
        return _DEGRADED_SHARE

    def _was_tried(self, meter: _Meter) -> bool:
        return meter.tried_s is not None and self._now_s >= meter.tried_s + _TRIAL_S
