"""The runs of a demo side by side: a table for people, plain data for programs."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from tidegate.sim.report import Control, Percentile, RunResult

_Cell = Callable[[RunResult], str]

_ROWS: tuple[tuple[str, _Cell], ...] = (
    ("goodput, requests/s", lambda run: f"{run.figures.goodput_per_s:.1f}"),
    ("TTFT p50, s", lambda run: _seconds(run.figures.ttft_p50)),
    ("TTFT p99, s", lambda run: _seconds(run.figures.ttft_p99)),
    ("requests sent", lambda run: f"{run.figures.requests}"),
    ("served well", lambda run: f"{run.figures.within}"),
    ("admitted", lambda run: f"{run.figures.admitted}"),
    ("  delayed first", lambda run: f"{run.figures.delayed}"),
    ("refused, 429", lambda run: f"{run.figures.refused_429}"),
    ("refused, 503", lambda run: f"{run.figures.refused_503}"),
    ("clients that left", lambda run: f"{run.figures.left}"),
    ("tokens wasted", lambda run: f"{run.tokens_wasted + run.prompt_tokens_wasted}"),
    ("quiet tenant in time", lambda run: _share(run.figures.quiet_share)),
)
_HIGHLIGHTED = {"goodput, requests/s", "TTFT p99, s", "quiet tenant in time"}


def table_of(runs: Sequence[RunResult], titles: dict[str, str]) -> Table:
    """One column a run, in the order of the runs, on 80 columns; `titles` names the phases for people."""
    table = Table(
        title="The same requests, without and with Tidegate",
        title_justify="left",
        box=SIMPLE_HEAD,
        show_edge=False,
        collapse_padding=True,
        pad_edge=False,
    )
    table.add_column("", no_wrap=True)
    for run in runs:
        title = titles[run.phase].replace(" ", "\n")
        style = "green" if run.control is Control.WITH else None
        table.add_column(f"{title}\n{run.control.value}", justify="right", style=style, no_wrap=True)
    rows = list(_ROWS)
    if any(_failed(run) for run in runs):
        rows.append(("failed or unfinished", lambda run: f"{_failed(run)}"))
    for label, cell in rows:
        table.add_row(label, *(cell(run) for run in runs), style="bold" if label in _HIGHLIGHTED else None)
    return table


def data_of(runs: Sequence[RunResult]) -> list[dict[str, Any]]:
    """The runs as JSON-ready data, every figure unrounded."""
    return [asdict(run) | {"envoy_requests": dict(run.envoy_requests)} for run in runs]


def _failed(run: RunResult) -> int:
    return run.figures.broken + run.figures.unfinished + run.figures.refused_other


def _seconds(percentile: Percentile | None) -> str:
    if percentile is None:
        return "-"
    return f"{'>' if percentile.lower_bound else ''}{percentile.value_s:.2f}"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"
