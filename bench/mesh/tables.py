"""The tables: one line a contender."""

from collections.abc import Iterable, Mapping

from rich.box import SIMPLE_HEAD
from rich.table import Table

from bench.mesh import scenes
from bench.mesh.contenders import Name
from bench.mesh.figures import Figures
from bench.mesh.result import Result
from tidegate.sim.report import Percentile

Results = Mapping[Name, Result]
RATIO_AIM = 1.14


def tables_of(results: Results) -> Iterable[Table]:
    """Those for which there is anything to say."""
    if any(each.overload is not None for each in results.values()):
        yield _overload(results)
    if any(each.quiet is not None for each in results.values()):
        yield _quiet(results)
    if any(each.spike is not None for each in results.values()):
        yield _spike(results)
    yield _cores(results)


def _overload(results: Results) -> Table:
    table = _table(
        f"At {scenes.LOAD:g} times load 1, clients that retry",
        "good/s",
        "from\nstart/s",
        "jobs\nin time",
        "by quartile\nof cost, %",
        "good\ntries",
        "TTFT\np50",
        "TTFT\np99",
        "waste",
        "refused\n429, other",
        "left",
        "tries\na job",
        "jobs",
    )
    for name, result in results.items():
        each = result.overload
        if each is not None:
            table.add_row(
                name,
                f"{each.good_per_s:.1f}",
                f"{each.from_start_per_s:.1f}",
                _share(each.in_time),
                _quartiles(each),
                _share(each.good_tries),
                _seconds(each.ttft_p50),
                _seconds(each.ttft_p99),
                _share(result.waste, digits=1),
                f"{each.refused.get(429, 0)}, {_refused_other(each)}",
                f"{each.left}",
                f"{each.tries_per_job:.2f}",
                f"{each.jobs}",
            )
    return table


def _quiet(results: Results) -> Table:
    table = _table(
        f"A quiet tenant at {scenes.QUIET_LOAD:g} times load 1, alone, then beside one that floods at {scenes.LOAD:g}",
        "TTFT p99\nalone",
        "TTFT p99\nbeside",
        f"ratio\n(aim {RATIO_AIM:g})",
        "its 90 %\nrange",
        "TTFT p50s\nalone, beside",
        "held p99\nbeside",
        "n alone,\nbeside",
        "in time\nbeside",
        "both\ngood/s",
        "waste",
    )
    for name, result in results.items():
        each, both = result.quiet, result.flood
        if each is not None and both is not None:
            table.add_row(
                name,
                _plain(each.solo_p99_s),
                _plain(each.beside_p99_s),
                _plain(each.ratio, digits=2),
                f"{_plain(each.ratio_low, digits=1)} to {_plain(each.ratio_high, digits=1)}",
                f"{_plain(each.solo_p50_s)}, {_plain(each.beside_p50_s)}",
                _plain(each.held_p99_s),
                f"{each.n_solo}, {each.n_beside}",
                _share(each.in_time),
                f"{both.good_per_s:.1f}",
                _share(result.flood_waste, digits=1),
            )
    return table


def _spike(results: Results) -> Table:
    table = _table(
        f"{scenes.SPIKE_FACTOR:g} times a load of {scenes.SPIKE_LOAD:g} for {scenes.FULL.spike_s:g} s",
        "jobs in time\nin the spike",
        "by quartile\nof cost, %",
        "TTFT\np99",
        "tries\na job",
        "95 % in time\nagain after, s",
    )
    for name, result in results.items():
        each = result.spike
        if each is not None:
            table.add_row(
                name,
                _share(each.in_time),
                _quartiles(each),
                _seconds(each.ttft_p99),
                f"{each.tries_per_job:.2f}",
                "not seen" if result.recovered_s is None else f"{result.recovered_s:.1f}",
            )
    return table


def _cores(results: Results) -> Table:
    table = _table("Processor time of all processes, clients included, in cores", "by scene", "by part, at most")
    for name, result in results.items():
        table.add_row(
            name,
            ", ".join(f"{scene} {cores:.2f}" for scene, cores in result.cores.items()),
            ", ".join(f"{part} {cores:.2f}" for part, cores in result.cores_by_part.items()),
        )
    return table


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _quartiles(figures: Figures) -> str:
    return " ".join(f"{100 * share:.0f}" for share in figures.quartiles)


def _refused_other(figures: Figures) -> int:
    return sum(count for status, count in figures.refused.items() if status != 429)


def _share(share: float | None, *, digits: int = 0) -> str:
    return "-" if share is None else f"{share:.{digits}%}"


def _plain(value: float | None, *, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _seconds(percentile: Percentile | None) -> str:
    if percentile is None:
        return "-"
    return f"{'>' if percentile.lower_bound else ''}{percentile.value_s:.2f}"
