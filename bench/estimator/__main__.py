"""`python -m bench.estimator`: three predictors on a recorded stream, each learning online, in about 15 seconds."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.estimator.stream import read_stream, stream_path
from bench.estimator.timed import Timed
from bench.estimator.trigram import TrigramBaseline
from tidegate.estimator_command.tables import evaluation_table
from tidegate_estimator import NgramEstimator, WindowEstimator
from tidegate_estimator.evaluation import Evaluation, Scores, evaluate
from tidegate_estimator.training import IN_FLIGHT, Answered, Learner, replay

ROOT = Path(__file__).resolve().parents[2]
LARGE = 100  # answers of a tenant whose coverage is held against it


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One predictor's figures and times."""

    evaluation: Evaluation
    estimate_s: list[float]
    learn_s: list[float]

    @property
    def macro(self) -> Scores:
        """Averages over tenants."""
        assert self.evaluation.macro is not None, "no tenant with enough answers"
        return self.evaluation.macro


def main() -> int:
    """Run all on the stream; 0 also where there is no data to run on."""
    arguments = _parser().parse_args()
    console = Console(width=None if sys.stdout.isatty() else 130)
    if not stream_path(arguments.data).exists():
        console.print(f"skipped: no recorded stream at {stream_path(arguments.data)}; name its folder with --data")
        return 0
    rows = [step.row for step in read_stream(arguments.data)]
    predictors: dict[str, Learner] = {
        "running quantiles": WindowEstimator(),
        "3-grams alone": TrigramBaseline(),
        "n-grams, ours": NgramEstimator(),
    }
    runs = {name: _run(predictor, rows) for name, predictor in predictors.items()}
    console.print(_table(runs))
    if arguments.tenants:
        console.print(evaluation_table(list(runs.values())[-1].evaluation, title="the n-gram estimator, by tenant"))
    window, _, ours = runs.values()
    console.print(_ratios(window.macro, ours.macro))
    console.print(
        "running quantiles: by tenant and model; 3-grams alone: of the last 50 words, interpolated; "
        f"{len(rows)} requests, {IN_FLIGHT} in flight, all predictors start cold; errors are plain averages over the "
        f"tenants with 30 answers or more; coverage by tenant is that of tenants with {LARGE} or more"
    )
    return 0


def _run(predictor: Learner, rows: Sequence[Answered]) -> Run:
    timed = Timed(predictor)
    evaluation = evaluate(replay(timed, rows))
    return Run(evaluation=evaluation, estimate_s=timed.estimate_s, learn_s=timed.learn_s)


def _table(runs: dict[str, Run]) -> Table:
    table = Table(title="Completion lengths, predicted before the answer is known", title_justify="left")
    table.add_column("", no_wrap=True)
    for heading in (
        "MAE",
        "MdAPE",
        "log-\nRMSE",
        "tau",
        "p90\npinball",
        "mean\nbias",
        "p90 cov.\nall",
        "p90 cov.\ntenants",
        "estimate\nus p50/p99",
        "learn\nus p50/p99",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, run in runs.items():
        table.add_row(name, *_cells(run))
    return table


def _cells(run: Run) -> list[str]:
    macro, overall = run.macro, run.evaluation.overall
    assert overall is not None
    covered = [scores.p90_coverage for _, scores in run.evaluation.tenants if scores.n >= LARGE]
    return [
        f"{macro.mae:.1f}",
        f"{macro.mdape:.3f}",
        f"{macro.log_rmse:.3f}",
        f"{macro.tau:.3f}",
        f"{macro.p90_pinball:.1f}",
        f"{overall.mean_bias:+.3f}",
        f"{overall.p90_coverage:.3f}",
        f"{min(covered):.3f}-{max(covered):.3f}" if covered else "",
        _micros(run.estimate_s),
        _micros(run.learn_s),
    ]


def _micros(seconds: list[float]) -> str:
    p50, p99 = np.quantile(np.array(seconds) * 1e6, (0.5, 0.99))
    return f"{p50:.0f}/{p99:.0f}"


def _ratios(window: Scores, ours: Scores) -> str:
    """The n-gram estimator against the window of the same run."""
    parts = (
        f"MAE {ours.mae / window.mae:.2f}",
        f"MdAPE {ours.mdape / window.mdape:.2f}",
        f"log-RMSE {ours.log_rmse / window.log_rmse:.2f}",
        f"p90 pinball {ours.p90_pinball / window.p90_pinball:.2f}",
    )
    return f"the n-gram estimator's errors as a share of the running quantiles': {', '.join(parts)}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.estimator", description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", metavar="DIR", help="the corpus")
    parser.add_argument("--tenants", action="store_true", help="also the n-gram estimator's figures by tenant")
    return parser


if __name__ == "__main__":
    sys.exit(main())
