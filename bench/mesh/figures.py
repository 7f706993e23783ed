"""Figures of jobs: pure functions, the same for every contender.

    good try        its whole answer came, first token and mean time per token within objective
    job in time     its last try was good, counted from that try's own sending
    job from start  the same with the first token counted from when the job came: what its user lived through
    quartile        jobs in time of the cheapest quarter of the jobs by engine seconds, of the next, ...
    recovered       seconds after a spike from which on every `RECOVERED_OVER_S` of jobs have 95 % in time

TTFT is that of the tries that were not refused. A user that left before the first token counts with the time waited, so
that such a percentile is a lower bound and is marked as one.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from bench.mesh.job import Job
from tidegate.sim.record import End
from tidegate.sim.report import Objective, Percentile, ttft_percentile

QUARTILES = 4
RECOVERED = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One window in numbers.

    Attributes:
        jobs, tries: how many came, and how many tries they made.
        good_per_s: jobs in time, a second of the window. Only a job's last try can be good, so of tries there are as
            many.
        from_start_per_s: jobs in time from their start, a second.
        in_time, from_start: the same as shares of the jobs.
        good_tries: good tries as a share of all tries.
        quartiles: share of jobs in time by quartile of cost, the cheapest first.
        ttft_p50, ttft_p99: None where nothing was let in.
        refused: refused tries by status.
        left: jobs whose user left, before or after the first token.
        broken: jobs that ended with a cut stream or an error event.
        cut: jobs that were still open when the run ended.
    """

    jobs: int
    tries: int
    good_per_s: float
    from_start_per_s: float
    in_time: float
    from_start: float
    good_tries: float
    quartiles: tuple[float, ...]
    ttft_p50: Percentile | None
    ttft_p99: Percentile | None
    refused: dict[int, int]
    left: int
    broken: int
    cut: int

    @property
    def tries_per_job(self) -> float:
        """1 where nothing is refused."""
        return self.tries / self.jobs


def figures_of(jobs: Sequence[Job], objective: Objective, *, seconds: float) -> Figures:
    """Sum up a window of so many seconds; ValueError where nothing came."""
    if not jobs:
        raise ValueError("no job came in the window")
    good = sum(job.met(objective) for job in jobs)
    from_start = sum(job.met_from_start(objective) for job in jobs)
    tries = [each for job in jobs for each in job.tries]
    ends = Counter(job.last.end for job in jobs)
    last = [job.last for job in jobs]
    return Figures(
        jobs=len(jobs),
        tries=len(tries),
        good_per_s=good / seconds,
        from_start_per_s=from_start / seconds,
        in_time=good / len(jobs),
        from_start=from_start / len(jobs),
        good_tries=good / len(tries),
        quartiles=quartiles_of(jobs, objective),
        ttft_p50=ttft_percentile(last, 0.50),
        ttft_p99=ttft_percentile(last, 0.99),
        refused=dict(sorted(Counter(each.status for each in tries if each.end is End.REFUSED).items())),
        left=ends[End.GAVE_UP_FIRST] + ends[End.GAVE_UP_WHOLE],
        broken=ends[End.BROKEN],
        cut=sum(job.cut for job in jobs),
    )


def quartiles_of(jobs: Sequence[Job], objective: Objective) -> tuple[float, ...]:
    """Share of jobs in time by quartile of cost; 0 of a quartile without jobs."""
    ranked = sorted(jobs, key=lambda job: job.cost_s)
    bounds = [len(ranked) * part // QUARTILES for part in range(QUARTILES + 1)]
    parts = [ranked[start:end] for start, end in pairwise(bounds)]
    return tuple(sum(job.met(objective) for job in part) / len(part) if part else 0.0 for part in parts)


def recovery_s(
    jobs: Sequence[Job], objective: Objective, *, spike_end_s: float, until_s: float, over_s: float, step_s: float
) -> float | None:
    """Seconds after the spike's end from which on each `over_s` of arrivals has 95 % in time; None: not by `until_s`.

    Spans start every `step_s` and the last ends at `until_s`; one without a job is no failure.
    """
    came = [(job.arrival.at_s - spike_end_s, job.met(objective)) for job in jobs]
    spans = int((until_s - spike_end_s - over_s) / step_s + 1e-9) + 1
    recovered: float | None = None
    for number in reversed(range(spans)):
        start_s = number * step_s
        met = [good for at_s, good in came if start_s <= at_s < start_s + over_s]
        if met and sum(met) < RECOVERED * len(met):
            break
        recovered = start_s
    return recovered


def tenant_jobs(jobs: Sequence[Job], tenant: str) -> tuple[Job, ...]:
    """One tenant's."""
    return tuple(job for job in jobs if job.arrival.tenant == tenant)
