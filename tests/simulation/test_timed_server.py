"""Models without tokens at twice what their server can do: with the gate all it does is of use, without it nothing."""

from functools import cache
from math import exp

import pytest

from tests.simulation.timed_server import MEDIAN_S_BY_SIZE, MODEL, Result, TimedServer

OBJECTIVE_S = 2.0


@cache
def overloaded(
    workers: int, *, gated: bool = True, seed: int = 101, objective_s: float = OBJECTIVE_S
) -> tuple[TimedServer, Result]:
    """A minute to find its limits and to learn, then a minute that counts."""
    server = TimedServer(workers=workers, load=2.0, objective_s=objective_s, gated=gated, seed=seed)
    return server, server.run(warm_up_s=60.0, span_s=60.0)


@pytest.mark.parametrize("seed", [101, 102, 104])
@pytest.mark.parametrize("workers", [1, 4, 6])
def test_with_the_gate_the_workers_do_nothing_in_vain(workers: int, seed: int) -> None:
    """Answers within the objective hold at least 0.95 of all service seconds that the workers have."""
    _, result = overloaded(workers, seed=seed)
    assert result.good_work_s >= 0.95 * workers * result.span_s


@pytest.mark.parametrize("seed", [101, 102])
def test_between_two_levels_of_concurrency_a_part_is_lost(seed: int) -> None:
    """Nine workers fall between levels of 8 and 12: at the lower one of them idles, and no more than that is lost."""
    _, result = overloaded(9, seed=seed)
    assert result.good_work_s >= 0.87 * 9 * result.span_s


@pytest.mark.parametrize("seed", [103, 107, 112])
def test_a_start_among_large_requests_does_not_end_in_a_jam(seed: int) -> None:
    """The one worker gets a run of large ones first, its callers leave, and it works on for nobody; it comes free."""
    _, result = overloaded(1, seed=seed)
    assert result.good_work_s >= 0.9 * result.span_s


@pytest.mark.parametrize("seed", [405, 412])
def test_callers_of_little_patience_do_not_jam_it_either(seed: int) -> None:
    """They leave before a full engine could answer anyone, and what is learned of times in that crowd is nonsense."""
    _, result = overloaded(1, seed=seed, objective_s=0.6)
    assert result.good_work_s >= 0.85 * result.span_s


@pytest.mark.parametrize("workers", [1, 4])
def test_without_the_gate_nobody_is_answered_in_time(workers: int) -> None:
    """The server's own line grows beyond every caller's patience, and it works for those that have left."""
    _, result = overloaded(workers, gated=False)
    assert result.good_work_s <= 0.1 * workers * result.span_s


@pytest.mark.parametrize("workers", [1, 4, 6])
def test_next_to_nothing_waits_in_the_server(workers: int) -> None:
    """An answer takes hardly longer than the service it needs: queueing happens where it can be ordered and expires."""
    _, result = overloaded(workers)
    assert result.in_server_s <= 1.25 * result.good_work_s


@pytest.mark.parametrize("workers", [1, 4])
def test_service_times_are_learned_under_overload(workers: int) -> None:
    """Though the server is never idle the median of each size is known: within 10 %, and within 20 % of the largest:
    few of them get through to a quiet server, a dozen in these two minutes.
    """
    server, _ = overloaded(workers)
    for size, median_s in MEDIAN_S_BY_SIZE.items():
        within = 0.2 if size == max(MEDIAN_S_BY_SIZE) else 0.1
        assert exp(server.times.estimate(MODEL, size).log_mean) == pytest.approx(median_s, rel=within)


def test_service_times_are_learned_within_500_answers_at_half_load() -> None:
    """From nothing, on a server with four workers that is half busy, each median is within 10 % and p90 covers 0.9."""
    server = TimedServer(workers=4, load=0.5, objective_s=OBJECTIVE_S, seed=4)
    server.run(warm_up_s=0.0, span_s=500.0 / server.rate_per_s)
    assert 400 < server.answers <= 560
    for size, median_s in MEDIAN_S_BY_SIZE.items():
        estimate = server.times.estimate(MODEL, size)
        assert exp(estimate.log_mean) == pytest.approx(median_s, rel=0.1)
        assert estimate.p90_s == pytest.approx(median_s * exp(1.2816 * 0.3), rel=0.15)


def test_below_its_capacity_a_server_loses_nothing() -> None:
    """At half load everybody is answered: limits that were learned on the way turn nobody away."""
    server = TimedServer(workers=4, load=0.5, objective_s=OBJECTIVE_S, seed=5)
    result = server.run(warm_up_s=20.0, span_s=60.0)
    assert result.good >= 0.99 * server.arrived_after_warm_up
