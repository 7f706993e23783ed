"""`python -m bench.goodput`: the control law against baselines in front of simulated engines, on recorded traces."""

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from bench.goodput import decision_time, events, short, steady
from bench.goodput.cell import Cell
from bench.goodput.contenders import CONTENDERS
from bench.goodput.figure import Figure, Line
from bench.goodput.policies.ours import adapter
from bench.goodput.policy import Policy
from bench.goodput.runs import PROCESSES, Need, Results, contenders_of, run
from bench.goodput.tables import best_points, tables_of
from bench.goodput.traces import TRACES, trace_path
from bench.goodput.workload import Workload

DECISION_TIME = "G15"


def main() -> int:
    """Run what is asked for; 1 where the short form misses a bound, 0 also where there are no traces."""
    arguments = _parser().parse_args()
    console = Console(width=None if sys.stdout.isatty() else 150)
    absent = [path for path in map(trace_path, TRACES) if not path.exists()]
    if absent:
        console.print(f"skipped: no recorded trace at {absent[0]}")
        return 0
    started = time.monotonic()
    if arguments.cell:
        _show(console, _asked(arguments), arguments.seeds, arguments.processes)
        return 0
    chosen = short.figures() if arguments.short else [*steady.figures(), *events.figures()]
    only = set(arguments.only.split(",")) if arguments.only else None
    lines = _figures(console, [each for each in chosen if only is None or each.name in only], arguments)
    if only is None or DECISION_TIME in only:
        p99_ms_max = short.P99_MS_MAX if arguments.short else decision_time.P99_MS_MAX
        lines += _printed(console, decision_time.lines(_deep, p99_ms_max=p99_ms_max))
    missed = sum(not line.ok for line in lines)
    console.print(f"{len(lines) - missed} of {len(lines)} lines as aimed for, in {time.monotonic() - started:.0f} s")
    return 1 if arguments.short and missed else 0


def _figures(console: Console, figures: Sequence[Figure], arguments: argparse.Namespace) -> list[Line]:
    needs = [need for figure in figures for need in figure.needs]
    if not needs:
        return []
    results = _show(console, needs, 1 if arguments.short else arguments.seeds, arguments.processes)
    lines = []
    for figure in figures:
        console.print(f"{figure.name}: {figure.about}", highlight=False)
        lines += _printed(console, figure.lines(results))
    return lines


def _show(console: Console, needs: Sequence[Need], seeds: int, processes: int) -> Results:
    """Run them and print their tables."""
    results = run(needs, seeds=seeds, processes=processes)
    for table in tables_of(needs, results):
        console.print(table)
    for line in best_points(needs, results):
        console.print(line, highlight=False)
    return results


def _printed(console: Console, lines: list[Line]) -> list[Line]:
    for line in lines:
        console.print(str(line), highlight=False)
    return lines


def _asked(arguments: argparse.Namespace) -> list[Need]:
    cells = []
    for text in arguments.cell:
        trace, _, load = text.partition(":")
        cells.append(Cell(workload=Workload(trace=trace, load=float(load), poisson=arguments.poisson)))
    return [Need(cell, policy) for cell in cells for policy in arguments.policy.split(",")]


def _deep(pool: dict[str, Any], queue_len: int) -> Policy:
    return adapter(pool, queue_len=queue_len, early_reject=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.goodput", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="windows of each trace (%(default)s)")
    parser.add_argument("--only", metavar="G2,G3", help="these figures")
    parser.add_argument(
        "--short", action="store_true", help="two cells in under a minute; fails when a bound is missed"
    )
    parser.add_argument(
        "--cell", action="append", metavar="TRACE:LOAD", help=f"a table of such cells; {', '.join(TRACES)}"
    )
    names = dict.fromkeys(name.partition(":")[0] for name in CONTENDERS)
    parser.add_argument(
        "--policy", type=_policies, default="none,gie,ours,clair", metavar="NAME,...", help=", ".join(names)
    )
    parser.add_argument("--poisson", action="store_true", help="with --cell: independent arrivals")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="at once (%(default)s)")
    return parser


def _policies(text: str) -> str:
    for name in text.split(","):
        if not contenders_of(name):
            raise argparse.ArgumentTypeError(f"no policy {name!r}")
    return text


if __name__ == "__main__":
    sys.exit(main())
