"""The short form for CI: two cells, one seed, bounds that only a broken control law misses."""

from dataclasses import replace

from bench.goodput.cell import Cell
from bench.goodput.figure import Figure, Line
from bench.goodput.runs import Need, Results
from bench.goodput.workload import Workload

TRACES = ("chat", "r1")
P99_MS_MAX = 5.0  # CI's machines are shared
POLICIES = ("none", "gie", "ours", "clair")


def _cell(trace: str) -> Cell:
    return Cell(workload=replace(Workload(trace=trace, load=2.0), warmup_s=60.0, window_s=60.0))


def _lines(trace: str, results: Results) -> list[Line]:
    cell = _cell(trace)
    return [
        Line(key=f"short_{trace}_share_of_clair", value=results.share(cell, "ours"), at_least=0.85),
        Line(key=f"short_{trace}_times_gie", value=results.share(cell, "ours", "gie"), at_least=1.1),
        Line(
            key=f"short_{trace}_preemptions",
            value=results.mean(cell, "ours", lambda each: float(each.preemptions)),
            at_most=0.0,
        ),
        Line(key=f"short_{trace}_waste", value=results.mean(cell, "ours", lambda each: each.waste), at_most=0.03),
    ]


def figures() -> list[Figure]:
    """One a trace."""
    return [
        Figure(
            name=f"short-{trace}",
            about=f"{trace} at load 2, a minute",
            needs=[Need(_cell(trace), policy) for policy in POLICIES],
            lines=lambda results, trace=trace: _lines(trace, results),  # type: ignore[misc]
        )
        for trace in TRACES
    ]
