"""Prometheus's text format, and OpenMetrics': only the series that are asked for.

Lines are picked by the name of their series before anything is parsed, so that a page of 20 MB costs one pass of a
regular expression over its bytes. What is picked is parsed line by line with prometheus_client's parser, so that one
broken line spoils its own series only. Comments are not read: a name says what a series is, and pages of one kind of
engine are known by their names.

A series has a fault, and is of no use, where one of its lines

    does not end           the page was cut there
    cannot be parsed       half a line, bad UTF-8, no number
    is there twice         the same labels once more

The line of an info series (vLLM's has 40 labels, and takes as long as a dozen others) is the same at each look at the
same engine, so the last few hundred that were parsed are remembered.

Source: the text format 0.0.4 of Prometheus and OpenMetrics 1.0; exemplars and timestamps are skipped.
"""

import re
from functools import lru_cache
from math import inf

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample as ParsedSample

from tidegate.errors import HalfPage
from tidegate.signals.series import Page, Sample

KEPT_LINES_MAX = 1024
KEPT_BYTES_MAX = 128 * 1024
LINE_BYTES_MAX = 8 * 1024
INFO_LINES_REMEMBERED = 256

# ValueError is the parser's own (bad UTF-8 is one too); the others leave it where labels are blank and where a
# timestamp is larger than any float.
_UNREADABLE = (ValueError, IndexError, OverflowError)


class Exposition:
    """Picks the series of the given names out of pages."""

    def __init__(self, *names: str) -> None:
        self._lines = re.compile(rb"\n(" + b"|".join(re.escape(name.encode()) for name in names) + rb")[{ \t][^\n]*")

    def page(self, page: bytes) -> Page:
        """The series of the page that are asked for; linear in its length.

        Raises:
            HalfPage: there are more lines of them than `KEPT_LINES_MAX`, or more bytes than `KEPT_BYTES_MAX`.
        """
        text = b"\n" + page
        found = _Found()
        for match in self._lines.finditer(text):
            found.add(match[1].decode(), match[0], ends=match.end() < len(text))
        return Page(found.samples, found.faults)


class _Found:
    def __init__(self) -> None:
        self.samples: dict[str, list[Sample]] = {}
        self.faults: dict[str, str] = {}
        self._seen: set[tuple[str, frozenset[tuple[str, str]]]] = set()
        self._lines = 0
        self._bytes = 0

    def add(self, name: str, line: bytes, *, ends: bool) -> None:
        self._lines += 1
        self._bytes += len(line)
        if self._lines > KEPT_LINES_MAX or self._bytes > KEPT_BYTES_MAX:
            raise HalfPage(f"more than {KEPT_LINES_MAX} lines or {KEPT_BYTES_MAX} bytes of the series that count")
        if name in self.faults:
            return
        parse = _parsed_info if name.endswith("_info") else _parsed
        parsed = parse(name, line) if ends and len(line) <= LINE_BYTES_MAX else None
        if parsed is None:
            self.faults[name] = "has a line that cannot be read" if ends else "has a line that ends with the page"
            return
        key = name, frozenset(parsed.labels.items())
        if key in self._seen:
            self.faults[name] = "is there twice with the same labels"
            return
        self._seen.add(key)
        self.samples.setdefault(name, []).append(Sample(parsed.labels, _float(parsed.value)))


def _parsed(name: str, line: bytes) -> ParsedSample | None:
    try:
        families = list(text_string_to_metric_families(line.decode()))
    except _UNREADABLE:
        return None
    samples = [sample for family in families for sample in family.samples]
    return samples[0] if len(samples) == 1 and samples[0].name == name else None


_parsed_info = lru_cache(INFO_LINES_REMEMBERED)(_parsed)


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return inf
