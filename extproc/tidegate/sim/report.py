"""Figures of a run from its clients' records: pure functions, the same for every control.

    within objective  = complete, TTFT <= its budget, mean time per token <= its target
    goodput           = requests within objective that ended while requests were sent / seconds of sending
    percentile q      = the smallest value that at least q of the values do not exceed (nearest rank)

What ends after the sending is served well but no part of the goodput, whose seconds it did not take.

TTFT is taken over all requests that were let in. A client that left without a first token counts with the time it
waited: it would have waited longer still, so such a percentile is a lower bound and is marked as one. Leaving those
clients out would make the worst control look best.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil

from tidegate.sim.record import End, Record

HELD_S_MIN = 0.001
"""The gateway reports whole milliseconds: below one a request was not held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What a client wants: time to first token and mean time per token after it, seconds."""

    ttft_s: float
    tpot_s: float

    def met_by(self, record: Record) -> bool:
        """Whether the whole answer came, soon enough and fast enough."""
        if record.end is not End.COMPLETE or record.ttft_s is None or record.ttft_s > self.ttft_s:
            return False
        return record.tpot_s is None or record.tpot_s <= self.tpot_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentile:
    """A percentile in seconds; `lower_bound` where it fell on a client that stopped waiting."""

    value_s: float
    lower_bound: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One run in numbers; counts are requests.

    Attributes:
        within: served within objective, whenever they ended.
        admitted: let in and answered with a 200.
        delayed: of the admitted, those the gateway held first.
        refused_other: any status but 200, 429 and 503.
        left: clients that gave up, on the first token or on the whole answer.
        broken: connection failed, stream cut or error event.
        unfinished: still open when the run ended, or never sent because too many were in flight.
        quiet_share: of the quiet tenant's requests, those within objective; None where it sent none.
        late_p99_s: how late the load driver itself sent: the error of measurement.
    """

    requests: int
    within: int
    goodput_per_s: float
    ttft_p50: Percentile | None
    ttft_p99: Percentile | None
    admitted: int
    delayed: int
    refused_429: int
    refused_503: int
    refused_other: int
    left: int
    broken: int
    unfinished: int
    quiet_share: float | None
    late_p99_s: float


class Control(StrEnum):
    """What stood between the clients and the engine."""

    WITHOUT = "without"  # Envoy alone
    WITH = "with"  # Envoy and Tidegate


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """One run: what its clients saw, what its engine counted, what Envoy counted.

    Attributes:
        tokens_generated: by the engine; tokens_wasted: those of them that were for clients that had left.
        prompt_tokens_wasted: computed for clients that left, or to be computed again after a preemption.
        preemptions: times the engine took the memory of a running request for another.
        envoy_requests: by decision, as Envoy's own stats counted them in this run.
        cores: processor time of all processes of the run together, in cores.
    """

    phase: str
    control: Control
    figures: Figures
    tokens_generated: int
    tokens_wasted: int
    prompt_tokens_wasted: int
    preemptions: int
    envoy_requests: Mapping[str, int]
    cores: float


def figures_of(records: Sequence[Record], objective: Objective, *, duration_s: float, quiet_tenant: str) -> Figures:
    """Sum up a run; `duration_s` is the time in which requests were sent."""
    well = [record for record in records if objective.met_by(record)]
    ends = [record.end for record in records]
    statuses = [record.status for record in records if record.end is End.REFUSED]
    admitted = [record for record in records if record.status == 200]
    late = percentile([record.late_s for record in records], 0.99)
    return Figures(
        requests=len(records),
        within=len(well),
        goodput_per_s=sum(record.ended_s <= duration_s for record in well) / duration_s,
        ttft_p50=ttft_percentile(records, 0.50),
        ttft_p99=ttft_percentile(records, 0.99),
        admitted=len(admitted),
        delayed=sum((record.held_s or 0.0) >= HELD_S_MIN for record in admitted),
        refused_429=statuses.count(429),
        refused_503=statuses.count(503),
        refused_other=len(statuses) - statuses.count(429) - statuses.count(503),
        left=ends.count(End.GAVE_UP_FIRST) + ends.count(End.GAVE_UP_WHOLE),
        broken=ends.count(End.BROKEN),
        unfinished=ends.count(End.CUT) + ends.count(End.OVERFLOW),
        quiet_share=share_within(records, objective, tenant=quiet_tenant),
        late_p99_s=0.0 if late is None else late,
    )


def percentile(values: Sequence[float], q: float) -> float | None:
    """Nearest-rank percentile, 0 < q <= 1; None of nothing."""
    if not values:
        return None
    return sorted(values)[max(ceil(q * len(values)) - 1, 0)]


def ttft_percentile(records: Sequence[Record], q: float) -> Percentile | None:
    """TTFT percentile over all requests that were not refused; None where there is none."""
    waits = sorted(wait for record in records if (wait := _wait(record)) is not None)
    if not waits:
        return None
    value_s, lower_bound = waits[max(ceil(q * len(waits)) - 1, 0)]
    return Percentile(value_s=value_s, lower_bound=lower_bound)


def share_within(records: Sequence[Record], objective: Objective, *, tenant: str) -> float | None:
    """Of one tenant's requests, the share within objective; None where it sent none."""
    own = [record for record in records if record.tenant == tenant]
    return sum(objective.met_by(record) for record in own) / len(own) if own else None


def _wait(record: Record) -> tuple[float, bool] | None:
    """Seconds waited for the first token, and whether it never came; None for a refused or failed request."""
    if record.ttft_s is not None:
        return record.ttft_s, False
    waited_in_vain = record.end in (End.GAVE_UP_FIRST, End.GAVE_UP_WHOLE, End.CUT)
    return (record.e2e_s, True) if waited_in_vain else None
