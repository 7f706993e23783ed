"""What runs amount to, and how it is said."""

from pathlib import Path

import numpy as np
import pytest
from bench.goodput import events, short, steady
from bench.goodput.cell import Cell
from bench.goodput.contenders import CONTENDERS
from bench.goodput.figure import Line, geometric_mean
from bench.goodput.measure import Figures, figures_of
from bench.goodput.runs import Need, Results, Task, contenders_of, run
from bench.goodput.traces import TRACES, read_trace, trace_path
from bench.goodput.workload import Workload

from tests.recorded import NO_TRACES
from tests.simulation.goodput_scenes import Told, request, simulated

CELL = Cell(workload=Workload(trace="chat", load=2.0))
recorded = pytest.mark.skipif(not all(trace_path(each).exists() for each in TRACES), reason=NO_TRACES)


def some_figures(goodput_per_s: float) -> Figures:
    return Figures(
        goodput_per_s=goodput_per_s,
        arrivals_per_s=10.0,
        attainment=goodput_per_s / 10.0,
        quartiles=(1.0, 1.0, 0.5, 0.0),
        by_tenant={},
        by_second={},
        ends={},
        attempts_per_request=1.0,
        refusal_s=0.0,
        ttft_p99_s=0.0,
        waste=0.0,
        prefill_waste=0.0,
        preemptions=0,
    )


def test_lines_say_key_value_and_whether_the_aim_is_met() -> None:
    """A line is `key=value`, the aim and `ok`, or `MISSED`; one without an aim only reports."""
    assert str(Line(key="G2_share_of_clair", value=0.97, at_least=0.95)) == "G2_share_of_clair=0.97 aim>=0.95 ok"
    assert str(Line(key="G6_preemptions", value=2.0, at_most=0.0)) == "G6_preemptions=2 aim<=0 MISSED"
    assert str(Line(key="G7_chat", value=1.5)) == "G7_chat=1.5"


def test_a_grid_counts_at_its_best_point_and_shares_are_of_means() -> None:
    """A policy with a grid is as good as its best point over all seeds together."""
    names = contenders_of("fixed")
    assert len(names) > 3
    figures = {Task(CELL, name, seed): some_figures(2.0) for name in names for seed in (0, 1)}
    figures[Task(CELL, names[1], 0)] = some_figures(5.0)
    figures[Task(CELL, names[2], 0)] = some_figures(4.0)
    figures[Task(CELL, names[2], 1)] = some_figures(4.0)
    figures |= {Task(CELL, "none", seed): some_figures(8.0) for seed in (0, 1)}
    results = Results(figures, seeds=2)
    assert results.best(CELL, "fixed") == names[2]
    assert results.goodput(CELL, "fixed") == 4.0
    assert results.share(CELL, "fixed", "none") == 0.5
    assert results.attainment(CELL, "none") == 0.8


def test_quartiles_go_by_cost() -> None:
    """Attainment is given for each quarter of the requests, cheapest first."""
    simulation = simulated(Told())
    requests = [request(30.0 * number, index=number) for number in range(8)]
    simulation.run(requests, (0.0, 1e3))
    for attempt in simulation.attempts:  # the dearer half is late
        late = attempt.request.index >= 4
        object.__setattr__(attempt.request, "cost_s", 1.0 + attempt.request.index)
        object.__setattr__(attempt.request, "ttft_budget_s", 0.0 if late else 9.0)
    assert figures_of(simulation, (0.0, 1e3)).quartiles == (1.0, 1.0, 0.0, 0.0)


def test_geometric_mean_of_a_zero_is_not_zero() -> None:
    """One cell at nothing weighs as a thousandth, so that the others still show."""
    assert geometric_mean([4.0, 1.0]) == pytest.approx(2.0)
    assert geometric_mean([1.0, 0.0]) == pytest.approx(1e-3**0.5)


def test_figures_ask_for_policies_that_exist() -> None:
    """Each need of each figure names a policy of the table."""
    needs = [need for figure in [*events.figures(), *short.figures()] for need in figure.needs]
    assert needs
    assert all(contenders_of(need.policy) for need in needs)
    assert len(set(CONTENDERS)) == len(CONTENDERS)


@recorded
def test_steady_figures_cover_the_table() -> None:
    """Each number of the steady part of the table has its figure."""
    names = [figure.name for figure in steady.figures()]
    assert names == ["G1", "G2", "G3", "G4", "G5", "G6", "G6p", "G7", "G14"]


@recorded
@pytest.mark.parametrize("name", TRACES)
def test_traces_are_in_order_and_within_their_bounds(name: str) -> None:
    """Recorded requests come in order of time, have tokens, and none is longer than the trace's bound."""
    trace = read_trace(name)
    assert np.all(np.diff(trace.at_s) >= 0)
    assert int(trace.prompt_tokens.min()) >= 1
    assert int((trace.prompt_tokens + trace.completion_tokens).max()) <= TRACES[name].context_tokens_max
    assert len(np.unique(trace.at_s)) > 0.6 * len(trace)


@recorded
def test_the_model_is_where_the_table_puts_it() -> None:
    """At load 1 without control most meet their objectives, at load 2 hardly any, and the KV gate is in between."""
    light = Cell(workload=Workload(trace="chat", load=0.8))
    results = run([Need(light, "none"), Need(CELL, "none"), Need(CELL, "gie")], seeds=1, processes=1)
    assert results.attainment(light, "none") > 0.95
    assert results.attainment(CELL, "none") < 0.05
    assert 0.4 < results.attainment(CELL, "gie") < 0.65
    again = run([Need(CELL, "gie")], seeds=1, processes=1)
    assert again.of(CELL, "gie") == results.of(CELL, "gie")


def test_absent_traces_are_a_file_not_found(tmp_path: Path) -> None:
    """A folder without traces is said by name."""
    with pytest.raises(FileNotFoundError):
        read_trace("chat", tmp_path)
