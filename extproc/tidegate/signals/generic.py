"""Any engine with a Prometheus page, by a mapping: which series of the page is which field of a reading.

    running=my_active;waiting=my_requests{state="queued"};kv-usage=my_cache_percent*0.01;kv-tokens-max=my_blocks*16

One entry a field, `;` between them: the field, `=`, the name of a series as it stands on the page, then labels that its
samples must have, all of them, and a factor, both where needed. Fields:

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

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum, inf
from statistics import fmean

from tidegate.admission.reading import EngineReading
from tidegate.errors import HalfPage
from tidegate.signals.exposition import Exposition
from tidegate.signals.series import COUNT_MAX, TOKENS_MAX, Page

MAPPING_CHARS_MAX = 1024
FACTOR_MAX = 1e9

FIELDS = (
    "running",
    "waiting",
    "slots",
    "kv-usage",
    "kv-tokens-max",
    "steps-total",
    "tokens-total",
    "preemptions-total",
    "rejections-total",
    "memory-free-mib",
    "ready",
)
_COMBINED: dict[str, Callable[[Sequence[float]], float]] = {
    "kv-usage": fmean,
    "steps-total": fmean,
    "memory-free-mib": min,
    "ready": min,
}
_HIGHEST = {"running": COUNT_MAX, "waiting": COUNT_MAX, "slots": COUNT_MAX, "kv-usage": 1, "kv-tokens-max": TOKENS_MAX}
_ROUNDING = 1.0 + 1e-9

_LABEL = r'[A-Za-z_][A-Za-z0-9_]*="[^"\\;{}]*"'
_ENTRY = re.compile(
    r"(?P<field>[a-z-]+)=(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)"
    rf"(?:\{{(?P<labels>{_LABEL}(?:,{_LABEL})*)\}})?"
    r"(?:\*(?P<factor>[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]{1,2})?))?",
    re.ASCII,
)
_ONE_LABEL = re.compile(r'([^=,]+)="([^"]*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where the figure of one field comes from."""

    field: str
    name: str
    labels: tuple[tuple[str, str], ...] = ()
    factor: float = 1.0


def sources(text: str) -> tuple[Source, ...]:
    """The entries of a mapping.

    Raises:
        ValueError: it is not of the form above, a field is there twice or unknown, or it has more than 1024 characters.
    """
    if len(text) > MAPPING_CHARS_MAX:
        raise ValueError(f"more than {MAPPING_CHARS_MAX} characters")
    found = tuple(_source(entry.strip(" ")) for entry in text.split(";"))
    if len({source.field for source in found}) < len(found):
        raise ValueError("a field is there twice")
    return found


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


def _source(entry: str) -> Source:
    match = _ENTRY.fullmatch(entry)
    if match is None:
        raise ValueError(f'{entry!r} is not of the form FIELD=SERIES{{LABEL="VALUE"}}*FACTOR')
    if match["field"] not in FIELDS:
        raise ValueError(f"{match['field']!r} is none of {', '.join(FIELDS)}")
    labels = tuple(_ONE_LABEL.findall(match["labels"] or ""))
    factor = float(match["factor"] or 1.0)
    if len(dict(labels)) < len(labels):
        raise ValueError(f"{entry!r} has a label twice")
    if not 0.0 < factor <= FACTOR_MAX:
        raise ValueError(f"{entry!r} has a factor that is not above 0 and at most {FACTOR_MAX:g}")
    return Source(field=match["field"], name=match["name"], labels=labels, factor=factor)


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
