"""What a run amounts to.

    goodput      requests of the window that met both objectives, a second of the window
    attainment   the same as a share of those that arrived in it
    waste        completion tokens generated for requests that were then aborted, of all that were generated;
                 prefill waste: tokens prefilled for such requests or lost to preemption, of all prefilled

A client that retries is one request: it succeeded if any attempt met the objectives, counted from that attempt's own
arrival.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from bench.goodput.request import Attempt, State
from bench.goodput.simulation import Simulation

QUARTILES = 4
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One run.

    Attributes:
        goodput_per_s, arrivals_per_s: in the window.
        attainment: good requests as a share of those that arrived.
        quartiles: attainment by quartile of cost, cheapest first.
        by_tenant: arrived and good, of each tenant.
        by_second: arrived and good, by whole second of the arrival.
        ends: how the requests' last attempts ended.
        attempts_per_request: 1 where nobody retries.
        refusal_s: mean time until a reject.
        ttft_p99_s: of the requests that got a first token, from arrival.
        waste, prefill_waste: shares; over the whole run.
        preemptions: over the whole run.
    """

    goodput_per_s: float
    arrivals_per_s: float
    attainment: float
    quartiles: tuple[float, ...]
    by_tenant: dict[str, tuple[int, int]]
    by_second: dict[int, tuple[int, int]]
    ends: dict[str, int]
    attempts_per_request: float
    refusal_s: float
    ttft_p99_s: float
    waste: float
    prefill_waste: float
    preemptions: int


def figures_of(simulation: Simulation, window: tuple[float, float]) -> Figures:
    """The figures of a run that has ended."""
    attempts = [each for each in simulation.attempts if window[0] <= each.request.at_s < window[1]]
    last = {each.request.index: each for each in attempts}  # in order of arrival: the last attempt stays
    good = {each.request.index for each in attempts if each.good}
    length_s = window[1] - window[0]
    counters = [engine.counters for engine in simulation.engines.values()]
    return Figures(
        goodput_per_s=len(good) / length_s,
        arrivals_per_s=len(last) / length_s,
        attainment=len(good) / max(len(last), 1),
        quartiles=_quartiles(list(last.values()), good),
        by_tenant=_grouped([(each.request.tenant, index in good) for index, each in last.items()]),
        by_second=_grouped([(int(each.request.at_s), index in good) for index, each in last.items()]),
        ends=dict(Counter(str(each.state) for each in last.values())),
        attempts_per_request=len(attempts) / max(len(last), 1),
        refusal_s=_mean([_ended_s(each) - each.arrived_s for each in attempts if each.state is State.REJECTED]),
        ttft_p99_s=_p99([each.first_s - each.arrived_s for each in attempts if each.first_s is not None]),
        waste=_share(sum(each.wasted_tokens for each in counters), sum(each.completion_tokens for each in counters)),
        prefill_waste=_share(
            sum(each.wasted_prefill_tokens for each in counters), sum(each.prefill_tokens for each in counters)
        ),
        preemptions=sum(each.preemptions for each in counters),
    )


def _quartiles(attempts: Sequence[Attempt], good: set[int]) -> tuple[float, ...]:
    by_cost = sorted(attempts, key=lambda each: each.request.cost_s)
    parts = [
        by_cost[len(by_cost) * part // QUARTILES : len(by_cost) * (part + 1) // QUARTILES] for part in range(QUARTILES)
    ]
    return tuple(_mean([float(each.request.index in good) for each in part]) for part in parts)


def _grouped(pairs: Sequence[tuple[Key, bool]]) -> dict[Key, tuple[int, int]]:
    counts: dict[Key, tuple[int, int]] = {}
    for key, good in pairs:
        arrived, met = counts.get(key, (0, 0))
        counts[key] = (arrived + 1, met + good)
    return counts


def _ended_s(attempt: Attempt) -> float:
    assert attempt.ended_s is not None
    return attempt.ended_s


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _p99(values: Sequence[float]) -> float:
    return float(np.quantile(values, 0.99)) if values else 0.0


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
