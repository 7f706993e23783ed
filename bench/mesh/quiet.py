"""The quiet tenant beside a flood, against itself alone.

    ratio = p99 of its TTFT beside the flood / p99 of its TTFT alone, the same requests both times

A p99 of a few hundred requests is the third or sixth largest of them, so the ratio has a range: the middle 90 % of what
it is when both sets are drawn again, with replacement (the bootstrap). Requests that have no TTFT are not in it: the
share in time stands beside the ratio.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.mesh.job import Job
from tidegate.sim.report import Objective

DRAWS = 2000
RANGE = (0.05, 0.95)
_METHOD: Final = "inverted_cdf"  # nearest rank, as every percentile here


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """What the quiet tenant lived through; TTFT in seconds, of the `n` jobs that have one.

    Attributes:
        ratio: None where it has no TTFT on one side.
        ratio_low, ratio_high: the range of the bootstrap.
        in_time: share of its jobs beside the flood that were served within objective.
        held_p99_s: p99 beside the flood of what the gateway held; None where no gateway says.
    """

    n_solo: int
    n_beside: int
    solo_p50_s: float | None
    solo_p99_s: float | None
    beside_p50_s: float | None
    beside_p99_s: float | None
    held_p99_s: float | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    in_time: float


def quiet_of(solo: Sequence[Job], beside: Sequence[Job], objective: Objective, *, seed: int) -> Quiet:
    """From its jobs alone and beside the flood; ValueError where it had none beside."""
    if not beside:
        raise ValueError("the quiet tenant sent nothing beside the flood")
    alone_s, with_flood_s = _ttft_s(solo), _ttft_s(beside)
    last = [job.last for job in beside if job.last.ttft_s is not None]
    held_s = np.array([each.held_s for each in last if each.held_s is not None])
    ratios = _ratios(alone_s, with_flood_s, seed)
    solo_p99_s, beside_p99_s = _quantile(alone_s, 0.99), _quantile(with_flood_s, 0.99)
    return Quiet(
        n_solo=len(alone_s),
        n_beside=len(with_flood_s),
        solo_p50_s=_quantile(alone_s, 0.5),
        solo_p99_s=solo_p99_s,
        beside_p50_s=_quantile(with_flood_s, 0.5),
        beside_p99_s=beside_p99_s,
        held_p99_s=_quantile(held_s, 0.99),
        ratio=None if solo_p99_s is None or beside_p99_s is None else beside_p99_s / solo_p99_s,
        ratio_low=_quantile(ratios, RANGE[0]),
        ratio_high=_quantile(ratios, RANGE[1]),
        in_time=sum(job.met(objective) for job in beside) / len(beside),
    )


def _ttft_s(jobs: Sequence[Job]) -> NDArray[np.float64]:
    return np.array([job.last.ttft_s for job in jobs if job.last.ttft_s is not None])


def _quantile(values: NDArray[np.float64], q: float) -> float | None:
    return float(np.quantile(values, q, method=_METHOD)) if len(values) else None


def _ratios(solo_s: NDArray[np.float64], beside_s: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """The ratio of `DRAWS` pairs of resamples; none where a side is empty."""
    if not len(solo_s) or not len(beside_s):
        return np.array([])
    generator = np.random.default_rng(seed)
    p99_s = [
        np.quantile(generator.choice(values, (DRAWS, len(values))), 0.99, axis=1, method=_METHOD)
        for values in (beside_s, solo_s)
    ]
    ratios: NDArray[np.float64] = p99_s[0] / p99_s[1]
    return ratios
