"""The series kept of one page, and what can be asked of them.

Each question comes in two forms. `total`, `count`, `mean` and `share` are for what a page of the kind always has: they
raise a `HalfPage` that names the series where it is missing or has a fault. Those that end in `_if_there` are for the
rest: they say None then. What is asked for is taken as a whole or not at all: one sample among ten that is NaN,
negative, infinite or more than any counter here can be spoils their sum.
"""

from collections.abc import Mapping, Sequence
from math import fsum
from typing import NamedTuple

from tidegate.errors import HalfPage

VALUE_MAX = 1e15
"""The most that any sample may say."""
COUNT_MAX = 1_000_000
"""Sequences, requests or slots that one page may speak of."""
TOKENS_MAX = 1_000_000_000_000

_LABELS_SHOWN_CHARS_MAX = 120


class Sample(NamedTuple):
    """One sample: its labels, and its value, which may be any float as long as nobody asks for it."""

    labels: Mapping[str, str]
    value: float


class Page:
    """The samples of one page by the names of their series, and the faults of series that cannot be used."""

    def __init__(self, samples: Mapping[str, Sequence[Sample]], faults: Mapping[str, str]) -> None:
        self._samples = samples
        self._faults = faults

    def samples(self, name: str, /, **labels: str) -> Sequence[Sample]:
        """All samples of the series that have these labels, at least one.

        Raises:
            HalfPage: there is none, the series has a fault, or one of their values cannot be.
        """
        if name in self._faults:
            raise HalfPage(f"{name} {self._faults[name]}")
        found = _matching(self._samples.get(name, ()), labels)
        if not found:
            raise HalfPage(f"{name}{_selector(labels)} is missing")
        if not all(map(_can_be, found)):
            raise HalfPage(f"{name}{_selector(labels)} is not from 0 to {VALUE_MAX:g}")
        return found

    def samples_if_there(self, name: str, /, **labels: str) -> Sequence[Sample]:
        """The same, or none."""
        found = () if name in self._faults else _matching(self._samples.get(name, ()), labels)
        return found if all(map(_can_be, found)) else ()

    def total(self, name: str, /, **labels: str) -> float:
        """Sum of the samples."""
        return fsum(sample.value for sample in self.samples(name, **labels))

    def total_if_there(self, name: str, /, **labels: str) -> float | None:
        """Sum of the samples, or None."""
        found = self.samples_if_there(name, **labels)
        return fsum(sample.value for sample in found) if found else None

    def mean_if_there(self, name: str, /, **labels: str) -> float | None:
        """Mean of the samples, or None."""
        found = self.samples_if_there(name, **labels)
        return fsum(sample.value for sample in found) / len(found) if found else None

    def count(self, name: str, /, **labels: str) -> int:
        """Sum of the samples as a number of things."""
        return count_of(self.samples(name, **labels), name)

    def share(self, name: str, /, **labels: str) -> float:
        """Mean of the samples, each a share from 0 to 1."""
        return share_of(self.samples(name, **labels), name)

    def count_if_there(self, name: str, /, **labels: str) -> int | None:
        """Sum of the samples as a number of things, or None."""
        found = self.samples_if_there(name, **labels)
        return count_of(found, name) if found else None

    def has(self, name: str) -> bool:
        """Whether there is any line of the series, of use or not."""
        return name in self._samples or name in self._faults

    def either(self, *names: str) -> str:
        """The first of the names that the page has: a series that was renamed, newest name first.

        Raises:
            HalfPage: it has none of them.
        """
        for name in names:
            if self.has(name):
                return name
        raise HalfPage(f"{' or '.join(names)} is missing")

    def check_alike(self, *names: str) -> None:
        """Whether these series speak of the same engines: none has a sample whose labels another lacks.

        A page that was cut between two engines would otherwise add up to too little.

        Raises:
            HalfPage: one lacks a sample; it says which.
        """
        seen = {name: {frozenset(sample.labels.items()) for sample in self.samples(name)} for name in names}
        everywhere = set().union(*seen.values())
        for name, labels in seen.items():
            if everywhere != labels:
                raise HalfPage(f"{name}{_selector(dict(min(everywhere - labels, key=sorted)))} is missing")


def count_of(samples: Sequence[Sample], name: str) -> int:
    """Sum of the samples as a number of things.

    Raises:
        HalfPage: more than `COUNT_MAX`.
    """
    total = fsum(sample.value for sample in samples)
    if total > COUNT_MAX:
        raise HalfPage(f"{name} is more than {COUNT_MAX}")
    return round(total)


def share_of(samples: Sequence[Sample], name: str) -> float:
    """Mean of the samples.

    Raises:
        HalfPage: one of them is more than 1.
    """
    if any(sample.value > 1.0 for sample in samples):
        raise HalfPage(f"{name} is more than 1")
    return fsum(sample.value for sample in samples) / len(samples)


def tokens_of(blocks: float | None, block_tokens: float | None) -> int | None:
    """Tokens that so many blocks of a KV cache hold, or None where either is not known or nothing a cache can be."""
    if blocks is None or block_tokens is None or not 1.0 <= blocks * block_tokens <= TOKENS_MAX:
        return None
    return round(blocks * block_tokens)


def whole_of(text: str | None) -> int | None:
    """A whole number that is written in a label, or None where it is something else, as `None` is."""
    return int(text) if text is not None and len(text) <= 15 and text.isascii() and text.isdigit() else None


def _can_be(sample: Sample) -> bool:
    return 0.0 <= sample.value <= VALUE_MAX  # NaN is not


def _matching(samples: Sequence[Sample], labels: Mapping[str, str]) -> Sequence[Sample]:
    if not labels:
        return samples
    wanted = labels.items()
    return [sample for sample in samples if wanted <= sample.labels.items()]


def _selector(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    text = ",".join(f"{name}={value!r}" for name, value in sorted(labels.items()))
    return f"{{{text[:_LABELS_SHOWN_CHARS_MAX]}}}"
