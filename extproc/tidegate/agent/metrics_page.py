"""`/metrics`: the last look for Prometheus. A sample there has no age beside it, so old figures are left out."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidegate import __version__
from tidegate.agent.headroom import headroom
from tidegate.agent.records import Gpu, GpuState, NodeState
from tidegate.agent.sampler import Seen

_GPU_LABELS = ("gpu", "uuid")
_MEMORY = "Memory of a GPU or MIG slice in bytes: "
_HEADROOM = "Free memory over all GPUs and MIG slices in bytes: "


class GpuCollector(Collector):
    """Renders what the sampler has seen.

    Args:
        looks: how often it has looked so far.
    """

    def __init__(self, seen: Callable[[], Seen], looks: Callable[[], int]) -> None:
        self._seen = seen
        self._looks = looks

    def collect(self) -> Iterator[Metric]:
        """One scrape."""
        seen = self._seen()
        state = GaugeMetricFamily("tidegate_gpu_agent_state", "1 for the state the node is in.", labels=["state"])
        for each in NodeState:
            state.add_metric([each], float(each is seen.state))
        yield state
        yield GaugeMetricFamily("tidegate_gpu_agent_age_seconds", "Since the last look began.", value=seen.age_s)
        yield CounterMetricFamily("tidegate_gpu_agent_looks", "Looks at the GPUs.", value=self._looks())
        build = GaugeMetricFamily(
            "tidegate_gpu_agent_build_info", "Versions of this process and of the driver.", labels=["version", "driver"]
        )
        build.add_metric([__version__, seen.sample.driver], 1)
        yield build
        if seen.fresh:
            yield from _figures(seen.sample.gpus)


def registry_of(collector: GpuCollector) -> CollectorRegistry:
    """A registry of its own, with the usual process metrics beside ours."""
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return registry


def _figures(gpus: tuple[Gpu, ...]) -> Iterable[Metric]:
    yield from (_info(gpus), _states(gpus), _utilisation(gpus), _ecc(gpus))
    yield from _memory(gpus)
    yield from _headroom(gpus)


def _info(gpus: tuple[Gpu, ...]) -> Metric:
    family = GaugeMetricFamily("tidegate_gpu_info", "Name of a GPU or MIG slice.", labels=[*_GPU_LABELS, "name"])
    for gpu in gpus:
        family.add_metric([gpu.label, gpu.uuid, gpu.name], 1)
    return family


def _states(gpus: tuple[Gpu, ...]) -> Metric:
    meaning = "1 for the state that a GPU or MIG slice is in."
    family = GaugeMetricFamily("tidegate_gpu_state", meaning, labels=[*_GPU_LABELS, "state"])
    for gpu in gpus:
        for state in GpuState:
            family.add_metric([gpu.label, gpu.uuid, state], float(state is gpu.state))
    return family


def _memory(gpus: tuple[Gpu, ...]) -> Iterable[Metric]:
    total = GaugeMetricFamily("tidegate_gpu_memory_total_bytes", f"{_MEMORY}all of it.", labels=_GPU_LABELS)
    free = GaugeMetricFamily("tidegate_gpu_memory_free_bytes", f"{_MEMORY}free.", labels=_GPU_LABELS)
    used = GaugeMetricFamily("tidegate_gpu_memory_used_bytes", f"{_MEMORY}held by processes.", labels=_GPU_LABELS)
    for gpu in gpus:
        if gpu.memory is not None:
            labels = (gpu.label, gpu.uuid)
            total.add_metric(labels, gpu.memory.total_bytes)
            free.add_metric(labels, gpu.memory.free_bytes)
            used.add_metric(labels, gpu.memory.used_bytes)
    return (total, free, used)


def _utilisation(gpus: tuple[Gpu, ...]) -> Metric:
    meaning = "Share of the time with a kernel running: quantiles over the window; 0 to 1."
    family = GaugeMetricFamily("tidegate_gpu_utilisation_ratio", meaning, labels=[*_GPU_LABELS, "quantile"])
    for gpu in gpus:
        if gpu.utilisation is not None:
            family.add_metric([gpu.label, gpu.uuid, "0.5"], gpu.utilisation.p50)
            family.add_metric([gpu.label, gpu.uuid, "0.95"], gpu.utilisation.p95)
    return family


def _ecc(gpus: tuple[Gpu, ...]) -> Metric:
    meaning = "Uncorrected memory errors of the whole GPU since its driver was loaded."
    family = CounterMetricFamily("tidegate_gpu_ecc_uncorrected", meaning, labels=_GPU_LABELS)
    for gpu in gpus:
        if gpu.ecc_uncorrected is not None:
            family.add_metric([gpu.label, gpu.uuid], gpu.ecc_uncorrected)
    return family


def _headroom(gpus: tuple[Gpu, ...]) -> Iterable[Metric]:
    found = headroom(gpus)
    if found is None:
        return ()
    return (
        GaugeMetricFamily(
            "tidegate_gpu_headroom_largest_bytes", f"{_HEADROOM}the most on one.", value=found.largest_bytes
        ),
        GaugeMetricFamily(
            "tidegate_gpu_headroom_least_bytes", f"{_HEADROOM}the least on one.", value=found.least_bytes
        ),
        GaugeMetricFamily("tidegate_gpu_headroom_sum_bytes", f"{_HEADROOM}the sum.", value=found.sum_bytes),
    )
