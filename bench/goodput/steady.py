"""Figures of the steady cells: G1 to G7 and G14.

The cells are 4 traces x 5 loads on one llama-70b-4xh100, timestamps compressed to the rate.
"""

from collections.abc import Sequence

from bench.goodput.cell import Cell
from bench.goodput.figure import Figure, Line, geometric_mean
from bench.goodput.runs import Need, Results
from bench.goodput.traces import TRACES, read_trace
from bench.goodput.workload import Workload

LOADS = (0.5, 0.8, 1.0, 2.0, 3.0)
BASELINES = (
    "none",
    "envoy-admission",
    "envoy-adaptive",
    "gradient2",
    "vegas",
    "p99",
    "slots",
    "littles-law",
    "gie",
    "token-cap",
    "fixed",
)
UNTUNED = "envoy-adaptive:defaults"
PRIOR_FACTORS = (0.2, 5.0)
OURS = ("ours", "clair")


def steady(trace: str, load: float) -> Cell:
    """The cell of a trace and a load."""
    return Cell(workload=Workload(trace=trace, load=load))


CELLS = {(trace, load): steady(trace, load) for trace in TRACES for load in LOADS}


def _scaled(trace: str, factor: float, load: float = 2.0) -> Cell:
    """The same problem in a slower or faster unit of time, so that the priors of the step time are off by `factor`."""
    spec = TRACES[trace]
    rows_s = 0.95 * len(read_trace(trace)) * factor / (load * spec.load_1_per_s)
    window_s = min(spec.window_s * max(factor, 1.0), rows_s - spec.warmup_s - 20.0)
    return Cell(workload=Workload(trace=trace, load=load, window_s=window_s), slowed=factor)


def _needs(cells: Sequence[Cell], *policies: str) -> list[Need]:
    return [Need(cell, policy) for cell in cells for policy in policies]


def _against(name: str, trace: str, of_clair: float, **factors: float) -> Figure:
    """G2 to G5: a trace at load 2 against the clairvoyant reference and baselines.

    With independent arrivals too, of requests from the whole trace: windows of consecutive ones differ in how long
    their prompts are, and with it in what ordering is worth.
    """
    cell = CELLS[trace, 2.0]
    poisson = Cell(workload=Workload(trace=trace, load=2.0, poisson=True))
    policies = [policy.replace("_", "-") for policy in factors]

    def lines(results: Results) -> list[Line]:
        return [
            Line(key=f"{name}_share_of_clair", value=results.share(cell, "ours"), at_least=of_clair),
            Line(key=f"{name}_poisson_share_of_clair", value=results.share(poisson, "ours"), at_least=of_clair),
            *(
                Line(
                    key=f"{name}_times_{policy}",
                    value=results.share(cell, "ours", policy.replace("_", "-")),
                    at_least=aim,
                )
                for policy, aim in factors.items()
            ),
            *(
                Line(
                    key=f"{name}_poisson_times_{policy}",
                    value=results.share(poisson, "ours", policy.replace("_", "-")),
                )
                for policy in factors
            ),
            *(
                Line(key=f"{name}_times_envoy_adaptive_defaults", value=results.share(cell, "ours", UNTUNED))
                for policy in factors
                if UNTUNED.startswith(policy.replace("_", "-"))
            ),
        ]

    needs = _needs([cell, poisson], *OURS, *policies)
    return Figure(name=name, about=f"{trace} at load 2", needs=needs, lines=lines)


def _g1(results: Results) -> list[Line]:
    margins = {
        (trace, load): results.attainment(cell, "ours") - results.attainment(cell, "none")
        for (trace, load), cell in CELLS.items()
        if load < 1.0
    }
    return [Line(key="G1_attainment_over_none_worst", value=min(margins.values()), at_least=-0.005)]


def _g6(results: Results) -> list[Line]:
    shares = [results.share(cell, "ours") for cell in CELLS.values()]
    runs = [each for cell in CELLS.values() for each in results.of(cell, "ours")]
    waste = [results.mean(cell, "ours", lambda each: each.waste) for cell in CELLS.values()]
    prefill_waste = [results.mean(cell, "ours", lambda each: each.prefill_waste) for cell in CELLS.values()]
    return [
        Line(key="G6_share_of_clair_geomean", value=geometric_mean(shares), at_least=0.95),
        Line(key="G6_share_of_clair_worst", value=min(shares), at_least=0.78),
        Line(key="G6_preemptions", value=sum(each.preemptions for each in runs), at_most=0),
        Line(key="G6_waste_worst", value=max(waste), at_most=0.015),
        Line(key="G6_prefill_waste_worst", value=max(prefill_waste), at_most=0.015),
    ]


def _g7(results: Results) -> list[Line]:
    gains = {
        trace: results.goodput(CELLS[trace, 3.0], "ours") / results.goodput(CELLS[trace, 2.0], "ours")
        for trace in TRACES
    }
    return [
        Line(key="G7_load_3_over_2_geomean", value=geometric_mean(list(gains.values())), at_least=1.1),
        *(Line(key=f"G7_load_3_over_2_{trace}", value=gain) for trace, gain in gains.items()),
    ]


def _g14(results: Results) -> list[Line]:
    return [
        Line(
            key=f"G14_{mode}_share_of_clair_geomean",
            value=geometric_mean([results.share(cell, f"ours-{mode}") for cell in CELLS.values()]),
            at_least=aim,
        )
        for mode, aim in (("compat", 0.93), ("native", 0.85))
    ]


def _priors() -> Figure:
    cells = {(trace, factor): _scaled(trace, factor) for trace in TRACES for factor in PRIOR_FACTORS}

    def lines(results: Results) -> list[Line]:
        shares = {key: results.share(cell, "ours") for key, cell in cells.items()}
        return [
            Line(key="G6_priors_5x_wrong_geomean", value=geometric_mean(list(shares.values())), at_least=0.95),
            Line(key="G6_priors_5x_wrong_worst", value=min(shares.values()), at_least=0.78),
            *(
                Line(key=f"G6_priors_{trace}_engine_{factor:g}x", value=share)
                for (trace, factor), share in shares.items()
            ),
        ]

    return Figure(
        name="G6p",
        about="load 2, engines 5 times faster or slower than the priors",
        needs=_needs(list(cells.values()), *OURS),
        lines=lines,
    )


def figures() -> list[Figure]:
    """All of them; the traces must be there."""
    cells = list(CELLS.values())
    light = [cell for (_, load), cell in CELLS.items() if load < 1.0]
    heavy = [cell for (_, load), cell in CELLS.items() if load > 1.0]
    return [
        Figure(name="G1", about="loads 0.5 and 0.8", needs=_needs(light, "ours", "none"), lines=_g1),
        _against("G2", "chat", 0.95, envoy_adaptive=2.8, gie=1.45, p99=1.5),
        _against("G3", "code", 0.90, envoy_adaptive=4.5, gie=2.4, p99=2.7),
        _against("G4", "mooncake", 0.95, gie=1.1),
        _against("G5", "r1", 0.93, gie=1.35),
        Figure(name="G6", about="every trace and load", needs=_needs(cells, *OURS, *BASELINES), lines=_g6),
        _priors(),
        Figure(name="G7", about="load 3 against 2", needs=_needs(heavy, "ours"), lines=_g7),
        Figure(
            name="G14",
            about="no engine metrics",
            needs=_needs(cells, "ours-compat", "ours-native", "clair"),
            lines=_g14,
        ),
    ]
