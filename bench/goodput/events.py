"""Figures of what happens to a pool: floods, spikes, faults, bad estimates, retries (G8, G9, G11 to G13)."""

from statistics import fmean

from bench.goodput.cell import Cell
from bench.goodput.figure import Figure, Line, geometric_mean
from bench.goodput.runs import Need, Results
from bench.goodput.simulation import Fault
from bench.goodput.workload import Spike, Workload

# G8: tenants share a load evenly and meet their objectives; one more adds twice load 1. The aim is held against the
# lighter pool, where the others' even shares are well above what they ask for; the fuller one is reported.
FLOODS = {
    "load_0.5": Cell(workload=Workload(trace="chat", load=0.5, tenants=4, flood=2.0)),
    "load_0.8": Cell(workload=Workload(trace="chat", load=0.8, tenants=8, flood=2.0)),
}
FLOOD_AIMED = "load_0.5"

# G9: the rate is that many times 0.8 for a while; then attainment of each five seconds of arrivals.
SPIKE_AT_S = 120.0
SPIKES = {
    "4x_20s": Spike(at_s=SPIKE_AT_S, for_s=20.0, factor=4.0),
    "8x_10s": Spike(at_s=SPIKE_AT_S, for_s=10.0, factor=8.0),
}
SPIKE_CELLS = {
    name: Cell(workload=Workload(trace="chat", load=0.8, poisson=True, window_s=130.0, spikes=(spike,)))
    for name, spike in SPIKES.items()
}
RECOVERED, RECOVERED_OVER_S, WATCHED_S = 0.95, 5, 40
REFERENCES = ("clair", "none")

# G11: four engines at load 1; possible is what the clairvoyant reference reaches under the same fault.
FAULTS = {
    "one_slow": ((Fault(engine=0, at_s=90.0, until_s=1e9, slow=3.0),), 0.96),
    "one_crashed": ((Fault(engine=0, at_s=90.0, until_s=180.0),), 0.96),
    "all_slow": (tuple(Fault(engine=each, at_s=90.0, until_s=1e9, slow=3.0) for each in range(4)), 0.84),
}
FAULT_CELLS = {
    name: Cell(workload=Workload(trace="chat", load=1.0, engines=4), faults=faults)
    for name, (faults, _) in FAULTS.items()
}

# G12: every estimate is off by the same factor.
BIASES = (0.2, 0.5, 2.0, 5.0)
BIASED_TRACES = ("chat", "r1")


def _biased(trace: str, bias: float) -> Cell:
    return Cell(workload=Workload(trace=trace, load=2.0, bias=bias))


# G13: clients retry at load 2.
RETRYING = Cell(workload=Workload(trace="chat", load=2.0), retries=True)


def _g8(results: Results) -> list[Line]:
    lines = []
    for name, cell in FLOODS.items():
        pairs = [pair for each in results.of(cell, "ours") for pair in each.by_tenant.items()]
        others = _attained([counts for tenant, counts in pairs if tenant != "flood"])
        flood = _attained([counts for tenant, counts in pairs if tenant == "flood"])
        aim = 0.95 if name == FLOOD_AIMED else None
        lines.append(Line(key=f"G8_attainment_of_others_{name}", value=others, at_least=aim))
        lines.append(Line(key=f"G8_attainment_of_flood_{name}", value=flood))
    return lines


def _attained(counts: list[tuple[int, int]]) -> float:
    return sum(good for _, good in counts) / max(sum(arrived for arrived, _ in counts), 1)


def _g9(results: Results) -> list[Line]:
    lines = []
    for name in SPIKES:
        lines.append(Line(key=f"G9_recovered_{name}_s", value=_recovery_s(results, name, "ours"), at_most=4.0))
        others = {policy: _recovery_s(results, name, policy) for policy in REFERENCES}
        lines += [Line(key=f"G9_recovered_{name}_s_{policy}", value=value_s) for policy, value_s in others.items()]
    return lines


def _recovery_s(results: Results, name: str, policy: str) -> float:
    """Seconds after the spike from which on each five seconds of arrivals attain 95 %, all seeds together."""
    spike = SPIKES[name]
    end_s = int(spike.at_s + spike.for_s)
    seconds = [each.by_second for each in results.of(SPIKE_CELLS[name], policy)]
    recovered_s = 0.0
    for after_s in range(WATCHED_S):
        span = range(end_s + after_s, end_s + after_s + RECOVERED_OVER_S)
        counts = [by_second[second] for by_second in seconds for second in span if second in by_second]
        if _attained(counts) < RECOVERED:
            recovered_s = after_s + 1.0
    return recovered_s


def _g11(results: Results) -> list[Line]:
    return [
        Line(key=f"G11_{name}_share_of_possible", value=results.share(FAULT_CELLS[name], "ours"), at_least=aim)
        for name, (_, aim) in FAULTS.items()
    ]


def _g12(results: Results) -> list[Line]:
    shares = {
        bias: geometric_mean(
            [
                results.goodput(_biased(trace, bias), "ours") / results.goodput(_biased(trace, 1.0), "ours")
                for trace in BIASED_TRACES
            ]
        )
        for bias in BIASES
    }
    return [
        Line(key="G12_biased_over_unbiased_worst", value=min(shares.values()), at_least=0.93),
        *(Line(key=f"G12_biased_over_unbiased_{bias:g}", value=share) for bias, share in shares.items()),
    ]


def _g13(results: Results) -> list[Line]:
    runs = results.of(RETRYING, "ours")
    return [
        Line(key="G13_jobs_within_objective", value=results.attainment(RETRYING, "ours"), at_least=0.72),
        Line(key="G13_attempts_a_job", value=fmean(each.attempts_per_request for each in runs), at_most=2.2),
    ]


def figures() -> list[Figure]:
    """All of them."""
    biased = [_biased(trace, bias) for trace in BIASED_TRACES for bias in (1.0, *BIASES)]
    return [
        Figure(name="G8", about="one tenant floods", needs=[Need(cell, "ours") for cell in FLOODS.values()], lines=_g8),
        Figure(
            name="G9",
            about="spikes on a load of 0.8",
            needs=[Need(cell, policy) for cell in SPIKE_CELLS.values() for policy in ("ours", *REFERENCES)],
            lines=_g9,
        ),
        Figure(
            name="G11",
            about="faults of four engines at load 1",
            needs=[Need(cell, policy) for cell in FAULT_CELLS.values() for policy in ("ours", "clair")],
            lines=_g11,
        ),
        Figure(
            name="G12", about="estimates off by a factor", needs=[Need(cell, "ours") for cell in biased], lines=_g12
        ),
        Figure(name="G13", about="clients retry at load 2", needs=[Need(RETRYING, "ours")], lines=_g13),
    ]
