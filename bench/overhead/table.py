"""The table: medians over the rounds, what each way adds to Envoy alone, and Tidegate against the floor."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median

from rich.table import Table

from bench.overhead.gateways import ESTIMATORS, Way
from bench.overhead.measure import Rounds, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Medians of one way; CPU a request under load."""

    per_s: float
    p50_us: float
    p99_us: float
    single_p50_us: float
    envoy_us: float
    service_us: float


def row_of(rounds: Rounds) -> Row:
    """The medians of all rounds."""
    return Row(
        per_s=_median(rounds.busy, lambda run: run.load.requests / run.load.elapsed_s),
        p50_us=_median(rounds.busy, lambda run: run.load.p50_s * 1e6),
        p99_us=_median(rounds.busy, lambda run: run.load.p99_s * 1e6),
        single_p50_us=_median(rounds.single, lambda run: run.load.p50_s * 1e6),
        envoy_us=_median(rounds.busy, lambda run: run.envoy_us),
        service_us=_median(rounds.busy, lambda run: run.service_us),
    )


def table_of(rows: dict[Way, Row], connections: int) -> Table:
    """One line a way, then what is added to Envoy alone."""
    table = Table(title="What admission adds to a request", title_justify="left")
    table.add_column("")
    for heading in (
        "requests/s",
        f"p50 us\n{connections} conn.",
        f"p99 us\n{connections} conn.",
        "p50 us\n1 conn.",
        "CPU us/req.\nEnvoy",
        "CPU us/req.\nservice",
    ):
        table.add_column(heading, justify="right")
    base = rows[Way.ENVOY]
    for way, row in rows.items():
        table.add_row(way, *_figures(row, row.per_s))
    table.add_section()
    for way in (Way.FLOOR, *ESTIMATORS):
        row = rows[way]
        added = Row(
            per_s=row.per_s,
            p50_us=row.p50_us - base.p50_us,
            p99_us=row.p99_us - base.p99_us,
            single_p50_us=row.single_p50_us - base.single_p50_us,
            envoy_us=row.envoy_us - base.envoy_us,
            service_us=row.service_us,
        )
        table.add_row(f"{way.split()[0]} - a", *_figures(added, None))
    return table


def ratios_of(rows: dict[Way, Row], rounds: dict[Way, Rounds]) -> Iterable[str]:
    """Each Tidegate against the floor, in words; the range is that of single rounds."""
    floor = rows[Way.FLOOR]
    for way, estimator in ESTIMATORS.items():
        ours = rows[way]
        each = [
            _cpu_us(run) / _cpu_us(theirs) for run, theirs in zip(rounds[way].busy, rounds[Way.FLOOR].busy, strict=True)
        ]
        yield (
            f"{estimator}: CPU {median(each):.2f} times the floor's ({min(each):.2f} to {max(each):.2f} a round), "
            f"of the service alone {ours.service_us / floor.service_us:.2f}; "
            f"throughput {ours.per_s / floor.per_s:.2f}; "
            f"one connection {ours.single_p50_us - floor.single_p50_us:+.0f} us"
        )


def _cpu_us(run: Run) -> float:
    """Envoy and service together."""
    return run.envoy_us + run.service_us


def _median(runs: Iterable[Run], figure: Callable[[Run], float]) -> float:
    return median(figure(run) for run in runs)


def _figures(row: Row, per_s: float | None) -> Iterable[str]:
    yield "" if per_s is None else f"{per_s:,.0f}"
    for figure in (row.p50_us, row.p99_us, row.single_p50_us, row.envoy_us, row.service_us):
        yield f"{figure:,.0f}"
