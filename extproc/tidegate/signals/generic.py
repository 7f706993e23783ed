"""Any engine with a Prometheus page, by a mapping: which series of the page is which field of a reading.

policy/page_mapping.py says how a mapping is written. Its fields:

    running, waiting, slots                  sequences
    kv-usage                                 a share from 0 to 1; the mean of the samples
    kv-tokens-max                            tokens
    steps-total                              the mean, as several engines on one page step side by side
    tokens-total                             of those steps: as they come out, not when a request ends
    preemptions-total, rejections-total      events
    memory-free-mib                          MiB; the least of the samples
    ready                                    not ready where a sample is 0

Samples are summed where nothing else is said.

Gauges that are mapped must be on the page. Counters, the fields that end in `-total`, may be missing: many begin with
the first event.
"""

from collections.abc import Callable, Sequence
from math import fsum, inf
from statistics import fmean

from tidegate.admission.reading import EngineReading
from tidegate.errors import HalfPage
from tidegate.policy.page_mapping import Source, sources
from tidegate.signals.exposition import Exposition
from tidegate.signals.series import COUNT_MAX, TOKENS_MAX, Page

_COMBINED: dict[str, Callable[[Sequence[float]], float]] = {
    "kv-usage": fmean,
    "steps-total": fmean,
    "memory-free-mib": min,
    "ready": min,
}
_HIGHEST = {"running": COUNT_MAX, "waiting": COUNT_MAX, "slots": COUNT_MAX, "kv-usage": 1, "kv-tokens-max": TOKENS_MAX}
_ROUNDING = 1.0 + 1e-9


class GenericReader:
    """Reads pages by a mapping."""

    kind = "prometheus"
    path = "/metrics"

    def __init__(self, mapping: str) -> None:
        """A reader by the text of a mapping; ValueError where it is not one."""
        self._sources = sources(mapping)
        self._series = Exposition(*dict.fromkeys(source.name for source in self._sources))

    def read(self, page: bytes) -> EngineReading:
        """What the page says; the gauges that are mapped are always on it."""
        series = self._series.page(page)
        figures = {source.field: _figure(series, source) for source in self._sources}
        return EngineReading(
            running=_whole(figures.get("running")),
            waiting=_whole(figures.get("waiting")),
            slots=_whole(figures.get("slots")),
            kv_usage=figures.get("kv-usage"),
            kv_tokens_max=_whole(figures.get("kv-tokens-max")),
            steps_total=figures.get("steps-total"),
            tokens_total=figures.get("tokens-total"),
            preemptions_total=figures.get("preemptions-total"),
            rejections_total=figures.get("rejections-total"),
            memory_free_mib=figures.get("memory-free-mib"),
            ready=figures.get("ready") != 0.0,
        )


def _figure(series: Page, source: Source) -> float | None:
    ask = series.samples_if_there if source.field.endswith("-total") else series.samples
    values = [sample.value for sample in ask(source.name, **dict(source.labels))]
    if not values:
        return None
    figure = _COMBINED.get(source.field, fsum)(values) * source.factor
    highest = _HIGHEST.get(source.field, inf)
    if figure > highest * _ROUNDING:  # most likely the factor is wrong: better said than dropped
        raise HalfPage(f"{source.name} * {source.factor:g} is more than {highest:g}, and no {source.field}")
    return min(figure, highest)


def _whole(figure: float | None) -> int | None:
    return None if figure is None else round(figure)
