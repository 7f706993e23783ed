"""Many runs on a few processes, and what they say together."""

import multiprocessing
import sys
from collections.abc import Callable, Iterable, Mapping
from statistics import fmean
from typing import NamedTuple

from bench.goodput.cell import Cell, run_cell
from bench.goodput.contenders import CONTENDERS
from bench.goodput.measure import Figures

PROCESSES = 2


class Need(NamedTuple):
    """A policy, or a whole grid by the name before its colon, in a cell."""

    cell: Cell
    policy: str


class Task(NamedTuple):
    """One run."""

    cell: Cell
    contender: str
    seed: int


def contenders_of(policy: str) -> list[str]:
    """The names that a policy stands for: itself, or each point of its grid."""
    return [name for name in CONTENDERS if name == policy or name.startswith(f"{policy}:")]


class Results:
    """Figures of all seeds by cell and policy; where a policy has a grid, of its best point in that cell."""

    def __init__(self, figures: Mapping[Task, Figures], seeds: int) -> None:
        self._figures = figures
        self._seeds = seeds

    def of(self, cell: Cell, policy: str) -> list[Figures]:
        """One for each seed."""
        return self._of(cell, self.best(cell, policy))

    def best(self, cell: Cell, policy: str) -> str:
        """The contender with the highest goodput of those that `policy` stands for."""
        return max(contenders_of(policy), key=lambda name: fmean(each.goodput_per_s for each in self._of(cell, name)))

    def mean(self, cell: Cell, policy: str, figure: Callable[[Figures], float]) -> float:
        """A figure's mean over the seeds."""
        return fmean(map(figure, self.of(cell, policy)))

    def goodput(self, cell: Cell, policy: str) -> float:
        """Mean goodput, requests a second."""
        return self.mean(cell, policy, lambda each: each.goodput_per_s)

    def attainment(self, cell: Cell, policy: str) -> float:
        """Good requests of all seeds as a share of those that arrived."""
        runs = self.of(cell, policy)
        return sum(each.goodput_per_s for each in runs) / max(sum(each.arrivals_per_s for each in runs), 1e-9)

    def share(self, cell: Cell, policy: str, of: str = "clair") -> float:
        """Goodput against another policy's in the same cell; 1 where both have none, infinite where only that has."""
        own, other = self.goodput(cell, policy), self.goodput(cell, of)
        if other > 0:
            return own / other
        return float("inf") if own > 0 else 1.0

    def _of(self, cell: Cell, contender: str) -> list[Figures]:
        return [self._figures[Task(cell, contender, seed)] for seed in range(self._seeds)]


def run(needs: Iterable[Need], *, seeds: int, processes: int = PROCESSES) -> Results:
    """Run each once for each seed; progress goes to stderr."""
    pairs = dict.fromkeys((need.cell, name) for need in needs for name in contenders_of(need.policy))
    tasks = [Task(cell, name, seed) for cell, name in pairs for seed in range(seeds)]
    figures: dict[Task, Figures] = {}
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        for number, (task, result) in enumerate(pool.imap_unordered(_run, tasks), start=1):
            figures[task] = result
            if number % 50 == 0 or number == len(tasks):
                print(f"{number} of {len(tasks)} runs", file=sys.stderr, flush=True)
    return Results(figures, seeds)


def _run(task: Task) -> tuple[Task, Figures]:
    return task, run_cell(task.cell, CONTENDERS[task.contender], task.seed)
