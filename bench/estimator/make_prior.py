"""`python -m bench.estimator.make_prior`: makes the shipped prior from corpus records, and says what it is worth.

    first answers   the first 20 of each tenant of the recorded stream, cold and from the prior
    alike           steps whose prompts are not among those trained on; tenants' and models' names are new
    unlike          a prior of all other sources, on the source left out (--leave-out)
    later           all answers of the same run: a prior must not slow down learning

The order is that of the files, shuffled with a fixed seed: the same data gives the same prior.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.estimator.prior_recipe import make_prior
from bench.estimator.stream import Step, corpus_paths, read_stream, source_of, stream_path
from tidegate.estimator_command.reading import Order, read_answers
from tidegate_estimator import NgramEstimator
from tidegate_estimator.evaluation import Scores, evaluate, macro_of, score
from tidegate_estimator.prior import FILE_NAME, pack_prior
from tidegate_estimator.training import Answered, Progressive, replay

ROOT = Path(__file__).resolve().parents[2]
FIRST = 20
_ANSWERS_A_PROMPT = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """What a start is worth: macro averages of the first answers of each tenant, and of all."""

    first: Scores
    later: Scores


def main() -> int:
    """Make, write and measure the prior; the exit status."""
    arguments = _parser().parse_args()
    data: Path = arguments.data
    if not stream_path(data).exists():
        sys.stderr.write(f"no corpus in {data}: name its folder with --data\n")
        return 1
    state = make_prior(_answers(corpus_paths(data, "train")))
    packed = pack_prior(state)
    arguments.out.write_bytes(packed)
    console = Console(width=110)
    console.print(f"{arguments.out}: {len(packed) / 1e3:.0f} kB, {len(state) / 1e6:.1f} MB unpacked")
    table, stream = _table(), read_stream(data)
    _compare(table, "alike", [step.row for step in stream if step.split == "dev"], state)
    if arguments.leave_out:
        _leave_out(table, data, stream)
    console.print(table)
    return 0


def worth(rows: Sequence[Answered], state: bytes | None) -> Worth:
    """Replay the rows from a start."""
    estimator = NgramEstimator()
    if state is not None:
        estimator.load(state)
    found = replay(estimator, rows)
    later = evaluate(found).macro
    first = macro_of(_first_scores(found), answers_min=1)
    assert first is not None
    assert later is not None, "no tenant with enough answers"
    return Worth(first=first, later=later)


def _first_scores(found: Progressive) -> list[Scores]:
    """Of the first answers of each tenant."""
    seen: Counter[str] = Counter()
    places: dict[str, list[int]] = {}
    for at, tenant in enumerate(found.tenants):
        seen[tenant] += 1
        if seen[tenant] <= FIRST:
            places.setdefault(tenant, []).append(at)
    columns = [np.array(column, np.float64) for column in (found.observed, found.p50, found.p90, found.mean)]
    return [score(*(column[mine] for column in columns)) for mine in places.values()]


def _leave_out(table: Table, data: Path, stream: Sequence[Step]) -> None:
    paths = corpus_paths(data, "train")
    for left in paths:
        source = source_of(left)
        state = make_prior(_answers([path for path in paths if path != left]))
        rows = [step.row for step in stream if step.source == source]
        _compare(table, f"unlike: {source}", rows, state)


def _compare(table: Table, name: str, rows: Sequence[Answered], state: bytes) -> None:
    for start, its_state in (("cold", None), ("prior", state)):
        found = worth(rows, its_state)
        cells = (found.first.log_rmse, found.first.p90_coverage, found.first.p90_pinball)
        later = (found.later.log_rmse, found.later.p90_coverage, found.later.p90_pinball)
        table.add_row(name, start, *(f"{figure:.3f}" for figure in (*cells, *later)))


def _answers(paths: Sequence[Path]) -> list[Answered]:
    answers = read_answers(paths, order=Order.SHUFFLED, answers_max=_ANSWERS_A_PROMPT, seal=None)
    return [row for row in answers.rows if isinstance(row, Answered)]


def _table() -> Table:
    table = Table(title=f"The first {FIRST} answers of each tenant, and all of them", title_justify="left")
    for column in ("stream", "start"):
        table.add_column(column)
    for part in (f"first {FIRST}", "all"):
        for column in ("log-RMSE", "p90 cov.", "p90 pinball"):
            table.add_column(f"{part}\n{column}", justify="right")
    return table


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.estimator.make_prior", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", metavar="DIR")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "estimator" / "tidegate_estimator" / FILE_NAME, metavar="FILE"
    )
    parser.add_argument("--leave-out", action="store_true", help="also leave each source out in turn (a minute more)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
