"""The Prometheus page: counters from the tally and gauges from the pools, gathered when somebody scrapes."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidegate import __version__
from tidegate.tally import HELP, LABELS, Count, Tally
from tidegate.telemetry.gauges import Gauge, PoolGauges, ProcessFigures


class ServiceCollector(Collector):
    """Renders everything this process counts."""

    def __init__(
        self,
        tally: Tally,
        pools: Callable[[], tuple[PoolGauges, PoolGauges]],
        process: Callable[[], ProcessFigures],
    ) -> None:
        """`pools` gives gauges and counters of each pool."""
        self._tally = tally
        self._pools = pools
        self._process = process

    def collect(self) -> Iterator[Metric]:
        """One scrape."""
        yield from self._counters()
        gauges, counters = self._pools()
        yield from _by_pool(gauges, GaugeMetricFamily)
        yield from _by_pool(counters, CounterMetricFamily)
        process = self._process()
        for gauge, value in process.gauges.items():
            yield GaugeMetricFamily(f"tidegate_{gauge.name}", gauge.meaning, value=value)
        for counter, value in process.counters.items():
            yield CounterMetricFamily(f"tidegate_{counter.name}", counter.meaning, value=value)
        build = GaugeMetricFamily("tidegate_build_info", "Version of this process.", labels=["version"])
        build.add_metric([__version__], 1)
        yield build

    def _counters(self) -> Iterator[Metric]:
        for count in Count:
            labels = LABELS[count]
            family = CounterMetricFamily(f"tidegate_{count}", HELP[count], labels=labels)
            series = self._tally.series(count)
            if not labels:
                series.setdefault((), 0)
            for values, total in sorted(series.items()):
                family.add_metric(values, total)
            yield family


def _by_pool(pools: PoolGauges, of: type[GaugeMetricFamily] | type[CounterMetricFamily]) -> Iterable[Metric]:
    families: dict[Gauge, GaugeMetricFamily | CounterMetricFamily] = {}
    for pool, figures in sorted(pools.items()):
        for figure, value in figures.items():
            family = families.get(figure)
            if family is None:
                family = families[figure] = of(f"tidegate_pool_{figure.name}", figure.meaning, labels=["pool"])
            family.add_metric([pool], value)
    return families.values()


def registry_of(*collectors: Collector) -> CollectorRegistry:
    """A registry of its own, with the usual process metrics beside ours."""
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry
