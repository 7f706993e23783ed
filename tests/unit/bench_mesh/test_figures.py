"""The figures of a race: what counts as in time, by whom, and when it is so again."""

import pytest
from bench.mesh.figures import figures_of, quartiles_of, recovery_s, tenant_jobs

from tests.unit.bench_mesh.jobs import OBJECTIVE, good, job, left, refused
from tidegate.sim.record import End
from tidegate.sim.report import Percentile


def test_a_job_is_judged_by_its_last_try() -> None:
    """Refused twice and then served well counts as one job in time, with three tries of which one was good."""
    figures = figures_of([job(refused(), refused(503), good(at_s=0.5))], OBJECTIVE, seconds=2.0)
    assert (figures.in_time, figures.good_per_s, figures.tries_per_job) == (1.0, 0.5, 3.0)
    assert figures.good_tries == pytest.approx(1 / 3)
    assert figures.refused == {429: 1, 503: 1}


@pytest.mark.parametrize(("second_at_s", "from_start"), [(0.8, 1.0), (0.81, 0.0)])
def test_from_start_counts_the_pauses_of_the_user(second_at_s: float, from_start: float) -> None:
    """The first token is counted from the job's coming: refused tries and pauses are the user's time too."""
    figures = figures_of([job(refused(), good(at_s=second_at_s, ttft_s=0.2))], OBJECTIVE, seconds=1.0)
    assert (figures.in_time, figures.from_start) == (1.0, from_start)


def test_how_jobs_end_is_counted_by_kind() -> None:
    """Users that left, streams that broke and jobs that the run's end cut are told apart, and none is in time."""
    jobs = [job(left(5.0)), job(good(end=End.GAVE_UP_WHOLE)), job(good(end=End.BROKEN)), job(refused(), cut=True)]
    figures = figures_of(jobs, OBJECTIVE, seconds=1.0)
    assert (figures.left, figures.broken, figures.cut, figures.in_time) == (2, 1, 1, 0.0)


def test_a_user_that_left_is_no_reason_for_a_better_percentile() -> None:
    """TTFT counts those that left with the time they waited, and is then a lower bound; refusals are not in it."""
    figures = figures_of([job(good(ttft_s=0.3)), job(left(5.0)), job(refused())], OBJECTIVE, seconds=1.0)
    assert figures.ttft_p50 == Percentile(value_s=0.3)
    assert figures.ttft_p99 == Percentile(value_s=5.0, lower_bound=True)


def test_a_window_without_jobs_has_no_figures() -> None:
    """Nothing came: that is a mistake of the scene, not a share of zero."""
    with pytest.raises(ValueError, match="no job"):
        figures_of([], OBJECTIVE, seconds=1.0)


def test_quartiles_go_by_cost_the_cheapest_first() -> None:
    """Whatever order they came in, a quarter of the jobs each."""
    jobs = [job(refused() if cost > 4 else good(), cost_s=float(cost)) for cost in (8, 1, 7, 2, 6, 3, 5, 4)]
    assert quartiles_of(jobs, OBJECTIVE) == (1.0, 1.0, 0.0, 0.0)
    assert quartiles_of(jobs[:1], OBJECTIVE) == (0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("bad_until_s", "expected"),
    [(0.0, 0.0), (2.0, 2.0), (2.5, 3.0), (9.0, None)],
)
def test_recovery_is_when_every_later_span_is_in_time(bad_until_s: float, expected: float | None) -> None:
    """From the first whole second from which each span of two seconds has 95 %; None where that is not seen."""
    jobs = [
        job(refused() if tenths / 10 < bad_until_s else good(), at_s=100.0 + tenths / 10 + 0.001)
        for tenths in range(100)
    ]
    found = recovery_s(jobs, OBJECTIVE, spike_end_s=100.0, until_s=110.0, over_s=2.0, step_s=1.0)
    assert found == expected


def test_a_relapse_is_no_recovery() -> None:
    """A good span counts for nothing where a later one is bad."""
    jobs = [job(refused() if second == 5 else good(), at_s=float(second)) for second in range(10)]
    assert recovery_s(jobs, OBJECTIVE, spike_end_s=0.0, until_s=10.0, over_s=2.0, step_s=1.0) == 6.0


def test_a_tenant_has_its_own_jobs() -> None:
    """Jobs are told apart by who sent them."""
    mine, theirs = job(tenant="quiet"), job(tenant="flood")
    assert tenant_jobs([mine, theirs], "quiet") == (mine,)
