"""The figures of a run: what counts as served well, and percentiles that do not flatter."""

from typing import Any

import pytest

from tidegate.sim.record import End, Record
from tidegate.sim.report import (
    Objective,
    Percentile,
    figures_of,
    percentile,
    share_within,
    ttft_percentile,
)

OBJECTIVE = Objective(ttft_s=1.0, tpot_s=0.1)


def record(**changes: Any) -> Record:
    served: dict[str, Any] = {
        "tenant": "quiet", "at_s": 0.0, "end": End.COMPLETE, "status": 200, "ttft_s": 0.2, "tpot_s": 0.05, "tokens": 10,
    }  # fmt: skip
    return Record(**(served | changes))


def refused(status: int, **changes: Any) -> Record:
    return record(end=End.REFUSED, status=status, ttft_s=None, tpot_s=None, tokens=0, **changes)


def left(waited_s: float, **changes: Any) -> Record:
    gone = {"end": End.GAVE_UP_FIRST, "status": 0, "ttft_s": None, "tpot_s": None, "tokens": 0}
    return record(e2e_s=waited_s, **(gone | changes))


@pytest.mark.parametrize(
    ("seen", "met"),
    [
        (record(), True),
        (record(ttft_s=1.0, tpot_s=0.1), True),
        (record(tpot_s=None, tokens=1), True),
        (record(ttft_s=1.001), False),
        (record(tpot_s=0.101), False),
        (record(end=End.GAVE_UP_WHOLE), False),
        (record(end=End.BROKEN), False),
        (record(end=End.CUT), False),
        (refused(429), False),
    ],
)
def test_the_objective_asks_for_the_whole_answer_in_time(seen: Record, met: bool) -> None:
    """Within objective: complete, first token within budget, tokens at the target pace; the bounds themselves count."""
    assert OBJECTIVE.met_by(seen) is met


@pytest.mark.parametrize(("q", "expected"), [(0.01, 1.0), (0.5, 5.0), (0.51, 6.0), (0.99, 10.0), (1.0, 10.0)])
def test_percentiles_are_nearest_rank(q: float, expected: float) -> None:
    """A percentile is one of the values, the smallest that q of them do not exceed."""
    assert percentile([float(value) for value in range(10, 0, -1)], q) == expected


def test_nothing_has_no_percentile() -> None:
    """An empty run shows no figure rather than a made-up one."""
    assert percentile([], 0.5) is None
    assert ttft_percentile([refused(429)], 0.5) is None


def test_clients_that_left_stay_in_the_ttft() -> None:
    """Who gave up waiting counts with the wait, and the percentile that falls there is a lower bound."""
    records = [record(ttft_s=0.1), record(ttft_s=0.3), left(5.0), left(5.0)]
    assert ttft_percentile(records, 0.5) == Percentile(value_s=0.3)
    assert ttft_percentile(records, 0.99) == Percentile(value_s=5.0, lower_bound=True)


def test_refused_and_failed_requests_are_not_in_the_ttft() -> None:
    """A quick refusal must not make the first token look quick."""
    records = [record(ttft_s=0.8), refused(429), refused(503), record(end=End.BROKEN, ttft_s=None, status=0)]
    assert ttft_percentile(records, 0.01) == Percentile(value_s=0.8)


def test_the_share_of_a_tenant_is_over_all_it_sent() -> None:
    """Refusals and clients that left lower the share; other tenants do not."""
    records = [record(), refused(429), left(5.0), record(ttft_s=3.0), record(tenant="flood")]
    assert share_within(records, OBJECTIVE, tenant="quiet") == pytest.approx(0.25)
    assert share_within(records, OBJECTIVE, tenant="absent") is None


def test_every_request_is_counted_once_by_its_end() -> None:
    """The counts of a run add up to what was sent."""
    records = [
        record(),
        record(held_s=0.4),
        record(held_s=0.0),
        refused(429),
        refused(429),
        refused(503),
        refused(502),
        left(5.0),
        record(end=End.BROKEN, status=0, ttft_s=None),
        record(end=End.CUT, status=0, ttft_s=None),
        record(end=End.OVERFLOW, status=0, ttft_s=None),
    ]
    figures = figures_of(records, OBJECTIVE, duration_s=2.0, quiet_tenant="quiet")
    assert (figures.requests, figures.within) == (11, 3)
    assert (figures.admitted, figures.delayed) == (3, 1)
    assert (figures.refused_429, figures.refused_503, figures.refused_other) == (2, 1, 1)
    assert (figures.left, figures.broken, figures.unfinished) == (1, 1, 2)
    assert figures.quiet_share == pytest.approx(3 / 11)


def test_goodput_counts_what_ended_while_requests_were_sent() -> None:
    """An answer that ends after the sending would be divided by seconds that it did not take: it does not count."""
    records = [record(at_s=1.0, e2e_s=0.5), record(at_s=1.0, e2e_s=1.1), record(at_s=1.0, late_s=0.9, e2e_s=0.2)]
    figures = figures_of(records, OBJECTIVE, duration_s=2.0, quiet_tenant="quiet")
    assert (figures.within, figures.goodput_per_s) == (3, 0.5)


def test_a_client_that_left_midway_was_admitted() -> None:
    """Admission is about the answer's start: who leaves later was let in all the same."""
    figures = figures_of(
        [left(60.0, end=End.GAVE_UP_WHOLE, status=200, ttft_s=0.2)], OBJECTIVE, duration_s=1.0, quiet_tenant="quiet"
    )
    assert (figures.admitted, figures.left, figures.within) == (1, 1, 0)


def test_an_empty_run_has_figures() -> None:
    """No requests is a run like any other."""
    figures = figures_of([], OBJECTIVE, duration_s=1.0, quiet_tenant="quiet")
    assert figures.requests == 0
    assert figures.ttft_p99 is None
    assert figures.quiet_share is None
