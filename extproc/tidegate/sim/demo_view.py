"""How the demo looks on a terminal: one calm progress line a run, then the table and Envoy's own words."""

from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from tidegate.sim import scenario
from tidegate.sim.record import End, Record
from tidegate.sim.report import Control, RunResult
from tidegate.sim.report_table import table_of
from tidegate.sim.scenario import Phase

_LEGEND = (
    "Goodput: requests served well that ended while others were sent. '>': clients stopped waiting then. "
    "Tokens wasted: computed for clients that left, or computed twice because the engine ran out of memory."
)
_CONTROL = {Control.WITHOUT: "without Tidegate", Control.WITH: "with Tidegate"}


class RunView:
    """The progress line of one run, and a summary line that stays when it is over; a context manager.

    Args:
        total_s: how long requests are sent; the bar is full then, and the run goes on until the last answer.
    """

    def __init__(self, console: Console, phase: Phase, control: Control, total_s: float) -> None:
        self._console = console
        self._label = f"{phase.title}, {_CONTROL[control]}"
        self._total_s = total_s
        self._sent = self._well = self._refused = self._left = 0
        columns = (TextColumn("{task.description:<32}"), BarColumn(bar_width=10), TextColumn("{task.fields[counts]}"))
        self._progress = Progress(
            *columns, console=console, transient=True, refresh_per_second=4, disable=not console.is_terminal
        )
        self._task: TaskID = self._progress.add_task(self._label, total=total_s, counts="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
        if error is None:
            self._console.print(f"{self._label:<32} {self._counts()}")

    def add(self, record: Record) -> None:
        """Count a request that has ended."""
        self._sent += 1
        self._well += scenario.OBJECTIVE.met_by(record)
        self._refused += record.end is End.REFUSED
        self._left += record.end in (End.GAVE_UP_FIRST, End.GAVE_UP_WHOLE)

    def tick(self, elapsed_s: float) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=min(elapsed_s, self._total_s), counts=self._counts())

    def _counts(self) -> str:
        return f"{self._sent:4d} ended, {self._well} in time, {self._refused} refused, {self._left} left"


def show_opening(console: Console, *, capacity_per_s: float, seconds: float) -> None:
    """What is about to happen."""
    ttft_s, tpot_ms = scenario.OBJECTIVE.ttft_s, scenario.OBJECTIVE.tpot_s * 1000
    patience_s = scenario.PATIENCE.first_token_s
    console.print(
        f"""[bold]Tidegate demo[/bold]: clients, Envoy, Tidegate and a simulated engine on this machine; no GPU needed.

The engine finishes at most {capacity_per_s:.1f} requests/s. A request is served well if its first token comes \
within {ttft_s:g} s and the others every {tpot_ms:.0f} ms. A client without a token leaves after {patience_s:g} s. \
Six runs of {seconds:g} s, each on a fresh engine: the same requests without and with Tidegate.
""",
        highlight=False,
    )


def show_closing(console: Console, runs: Sequence[RunResult], phases: Sequence[Phase], lines: Sequence[str]) -> None:
    """The table, and the lines of Envoy's stats that show the same decisions."""
    console.print()
    console.print(table_of(runs, {phase.name: phase.title for phase in phases}))
    console.print(_LEGEND, style="dim", highlight=False)
    console.print("\n[bold]Envoy's own stats[/bold] of the same decisions, from /stats/prometheus of its admin port:")
    for line in lines:
        console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
    console.print(_cross_check(runs), highlight=False)


def _cross_check(runs: Sequence[RunResult]) -> str:
    """The decisions of the runs with Tidegate, as both sides counted them (Envoy's lines also hold the warm-up)."""
    decided = [run for run in runs if run.control is Control.WITH]
    admitted = sum(run.figures.admitted for run in decided)
    refused = sum(run.figures.refused_429 + run.figures.refused_503 for run in decided)
    envoy = sum((Counter(run.envoy_requests) for run in decided), Counter[str]())
    return (
        f"Clients counted {admitted} admitted and {refused} refused; Envoy, in the same runs, "
        f"{envoy['admit'] + envoy['delay']} and {envoy['reject']}."
    )
