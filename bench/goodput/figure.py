"""A figure of the table to reach: which runs it needs, and the lines it makes of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import fmean

from bench.goodput.runs import Need, Results


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """`key=value`, and whether that is at least, or at most, the aim; without an aim it only reports."""

    key: str
    value: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def ok(self) -> bool:
        """Whether the aim is met."""
        return (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most
        )

    def __str__(self) -> str:
        """`G2_share_of_clair=0.97 aim>=0.95 ok`."""
        text = f"{self.key}={self.value:.4g}"
        if self.at_least is not None:
            text += f" aim>={self.at_least:g}"
        if self.at_most is not None:
            text += f" aim<={self.at_most:g}"
        if self.at_least is None and self.at_most is None:
            return text
        return f"{text} {'ok' if self.ok else 'MISSED'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One row: its number, what it is, the runs it needs, and its lines."""

    name: str
    about: str
    needs: Sequence[Need]
    lines: Callable[[Results], list[Line]]


def geometric_mean(values: Sequence[float]) -> float:
    """Of values that may be 0: those count as a thousandth, so that one does not hide the rest."""
    return exp(fmean(log(max(value, 1e-3)) for value in values))
