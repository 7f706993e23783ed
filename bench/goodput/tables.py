"""The tables: goodput by policy and trace for each load, attainment by quartile of cost, what was wasted."""

from collections.abc import Iterable, Sequence

from rich.table import Table

from bench.goodput.cell import Cell
from bench.goodput.runs import Need, Results, contenders_of
from bench.goodput.workload import Workload

REFERENCE = "clair"
OURS = "ours"
TIMES_SHOWN_MAX = 99.0


def tables_of(needs: Iterable[Need], results: Results) -> list[Table]:
    """One of each kind for each load of plain cells; other cells speak through their figures only."""
    by_load: dict[float, dict[Cell, list[str]]] = {}
    for cell, policy in needs:
        if cell == _plain(cell.workload):
            policies = by_load.setdefault(cell.workload.load, {}).setdefault(cell, [])
            if policy not in policies:
                policies.append(policy)
    return [
        table
        for load, cells in sorted(by_load.items())
        for table in (_goodput(load, cells, results), _quartiles(load, cells, results), _waste(load, cells, results))
    ]


def _plain(workload: Workload) -> Cell:
    """A cell of a trace and a load and nothing else."""
    return Cell(workload=Workload(trace=workload.trace, load=workload.load, poisson=workload.poisson))


def _policies(cells: dict[Cell, list[str]]) -> list[str]:
    """Of all cells; ours and the reference last."""
    names = dict.fromkeys(policy for policies in cells.values() for policy in policies)
    return sorted(names, key=lambda name: (name == REFERENCE, name.startswith(OURS)))  # stable: else as they come


def _goodput(load: float, cells: dict[Cell, list[str]], results: Results) -> Table:
    table = Table(
        title=f"Goodput a second at load {load:g}; share of {REFERENCE}; {OURS} over it", title_justify="left"
    )
    table.add_column("", no_wrap=True)
    for cell in cells:
        table.add_column(
            f"{cell.workload.trace}\n{_arrivals(cell, cells, results):.2f}/s came", justify="right", no_wrap=True
        )
    for policy in _policies(cells):
        table.add_row(policy, *(_goodput_cell(cell, policy, policies, results) for cell, policies in cells.items()))
    return table


def best_points(needs: Iterable[Need], results: Results) -> list[str]:
    """A line for each policy that has a grid: the point that is in the tables, by trace and load."""
    points: dict[str, list[str]] = {}
    for cell, policy in dict.fromkeys(needs):
        if len(contenders_of(policy)) > 1 and cell == _plain(cell.workload):
            point = results.best(cell, policy).partition(":")[2]
            points.setdefault(policy, []).append(f"{cell.workload.trace}:{cell.workload.load:g} {point}")
    return [f"best {policy}: {', '.join(each)}" for policy, each in points.items()]


def _arrivals(cell: Cell, cells: dict[Cell, list[str]], results: Results) -> float:
    return results.mean(cell, cells[cell][0], lambda each: each.arrivals_per_s)


def _goodput_cell(cell: Cell, policy: str, policies: Sequence[str], results: Results) -> str:
    if policy not in policies:
        return ""
    text = f"{results.goodput(cell, policy):.2f}"
    if REFERENCE in policies:
        text += f" {results.share(cell, policy, REFERENCE):5.2f}"
    if OURS in policies and policy != OURS:
        times = results.share(cell, OURS, policy)
        text += f" {times:6.2f}x" if times < TIMES_SHOWN_MAX else f" {'>99':>6}x"
    return text


def _quartiles(load: float, cells: dict[Cell, list[str]], results: Results) -> Table:
    table = Table(title=f"Attainment by quartile of cost at load {load:g}, cheapest first", title_justify="left")
    table.add_column("", no_wrap=True)
    for cell in cells:
        table.add_column(cell.workload.trace, justify="right", no_wrap=True)
    for policy in _policies(cells):
        table.add_row(
            policy, *(_quartile_cell(cell, policy, results) if policy in cells[cell] else "" for cell in cells)
        )
    return table


def _quartile_cell(cell: Cell, policy: str, results: Results) -> str:
    parts = zip(*(each.quartiles for each in results.of(cell, policy)), strict=True)
    return " ".join(f"{sum(part) / len(part):.2f}" for part in parts)


def _waste(load: float, cells: dict[Cell, list[str]], results: Results) -> Table:
    table = Table(
        title=f"At load {load:g}: wasted tokens % of generated / of prefilled, preemptions, TTFT p99 s, time to a no s",
        title_justify="left",
    )
    table.add_column("", no_wrap=True)
    for cell in cells:
        table.add_column(cell.workload.trace, justify="right", no_wrap=True)
    for policy in _policies(cells):
        table.add_row(policy, *(_waste_cell(cell, policy, results) if policy in cells[cell] else "" for cell in cells))
    return table


def _waste_cell(cell: Cell, policy: str, results: Results) -> str:
    return (
        f"{100 * results.mean(cell, policy, lambda each: each.waste):.1f}/"
        f"{100 * results.mean(cell, policy, lambda each: each.prefill_waste):.1f} "
        f"{results.mean(cell, policy, lambda each: each.preemptions):4.0f} "
        f"{results.mean(cell, policy, lambda each: each.ttft_p99_s):5.2f} "
        f"{results.mean(cell, policy, lambda each: each.refusal_s):5.2f}"
    )
