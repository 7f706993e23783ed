"""What engines say of themselves, and how often they could be asked: series by engine, at most 256 a pool."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidegate.admission.reading import EngineReading

_LABELS = ("pool", "engine")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFigures:
    """One engine: its address, its last reading, and the seconds since; since it joined where there is none."""

    address: str
    reading: EngineReading | None
    age_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSignals:
    """One pool whose engines are sought or asked.

    Attributes:
        engines: those that are asked.
        polls, lookups: counts by end.
        names_failing: DNS names whose last lookup had no answer.
    """

    engines: Sequence[EngineFigures]
    polls: Mapping[str, int]
    lookups: Mapping[str, int]
    names_failing: int


_GAUGES: tuple[tuple[str, str, Callable[[EngineReading], float | None]], ...] = (
    ("running", "Sequences that hold a slot, as the engine says.", lambda said: said.running),
    ("waiting", "Sequences that wait in the engine, as it says.", lambda said: said.waiting),
    ("kv_usage", "Share of the engine's KV cache in use, as it says.", lambda said: said.kv_usage),
    ("memory_free_mib", "Free memory of the engine's fullest GPU.", lambda said: said.memory_free_mib),
    ("ready", "0 where the engine says that it must not be sent anything.", lambda said: float(said.ready)),
)
_COUNTERS: tuple[tuple[str, str, Callable[[EngineReading], float | None]], ...] = (
    (
        "preemptions",
        "Sequences computed again for want of KV tokens, as the engine says.",
        lambda s: s.preemptions_total,
    ),
    ("rejections", "Requests the engine refused of its own accord, as it says.", lambda s: s.rejections_total),
)


class EngineCollector(Collector):
    """Renders them when somebody scrapes; `read` gives the pools by name."""

    def __init__(self, read: Callable[[], Mapping[str, PoolSignals]]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """One scrape."""
        pools = sorted(self._read().items())
        yield _by_end("tidegate_polls", "Polls of engines' pages, by how they ended.", pools, lambda each: each.polls)
        yield _by_end(
            "tidegate_lookups", "DNS lookups of engines, by how they ended.", pools, lambda each: each.lookups
        )
        failing = GaugeMetricFamily(
            "tidegate_pool_names_failing",
            "DNS names without an answer: their engines stay as they were.",
            labels=["pool"],
        )
        for pool, signals in pools:
            failing.add_metric([pool], signals.names_failing)
        yield failing
        yield from _of_engines(pools)


def _by_end(
    name: str, meaning: str, pools: Sequence[tuple[str, PoolSignals]], ends: Callable[[PoolSignals], Mapping[str, int]]
) -> Metric:
    family = CounterMetricFamily(name, meaning, labels=["pool", "end"])
    for pool, signals in pools:
        for end, count in ends(signals).items():
            family.add_metric([pool, end], count)
    return family


def _of_engines(pools: Sequence[tuple[str, PoolSignals]]) -> Iterator[Metric]:
    engines = [(pool, engine) for pool, signals in pools for engine in signals.engines]
    age = GaugeMetricFamily("tidegate_engine_reading_age_seconds", "Age of what the engine said last.", labels=_LABELS)
    for pool, engine in engines:
        age.add_metric([pool, engine.address], engine.age_s)
    yield age
    families: list[tuple[GaugeMetricFamily | CounterMetricFamily, Callable[[EngineReading], float | None]]] = [
        (GaugeMetricFamily(f"tidegate_engine_{name}", meaning, labels=_LABELS), figure)
        for name, meaning, figure in _GAUGES
    ]
    families += [
        (CounterMetricFamily(f"tidegate_engine_{name}", meaning, labels=_LABELS), figure)
        for name, meaning, figure in _COUNTERS
    ]
    for family, figure in families:
        for pool, engine in engines:
            value = None if engine.reading is None else figure(engine.reading)
            if value is not None:
                family.add_metric([pool, engine.address], value)
        yield family
