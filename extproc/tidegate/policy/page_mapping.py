"""How the mapping of a Prometheus page is read: which of its series is which field of a reading.

    running=my_active;waiting=my_requests{state="queued"};kv-usage=my_cache_percent*0.01;kv-tokens-max=my_blocks*16

One entry a field, `;` between them: the field, `=`, the name of a series as it stands on the page, then labels that its
samples must have, all of them, and a factor, both where needed.
"""

import re
from dataclasses import dataclass

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
