"""`tidegate estimator ...`: mounts the commands of this package on the command line."""

import argparse
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tidegate.arguments import whole
from tidegate.errors import FlagError
from tidegate.estimator_command.models import read_state, starting_estimator, write_model
from tidegate.estimator_command.reading import Answers, Order, read_answers
from tidegate.estimator_command.tables import evaluation_table, inspection_tables
from tidegate.seal import new_seal
from tidegate_estimator import NgramEstimator, model_file
from tidegate_estimator.evaluation import evaluate
from tidegate_estimator.guarded import drifts_of
from tidegate_estimator.inspection import inspect, key_figures, named_weights
from tidegate_estimator.training import IN_FLIGHT, Answered, Progressive, replay
from tidegate_estimator.window import key_of

EPOCHS_MAX = 100
ANSWERS_MAX = 12
_WIDTH = 110
_INIT_HELP = "model to go on from (default: the shipped prior); who is on the wider source in it is not carried over"
_FORMATS = """\
An input is JSON, one object a line, gzipped where its name ends in .gz:
  an OpenAI request (chat or completions) with "completion_tokens", and where known "tenant", "finish_reason",
  "prompt_tokens" and "time" (seconds or ISO 8601);
  a corpus record, "kind": "prompt" (with "completions") or "conv";
  an entry of Envoy's access log with "admission", "usage", "status" and "flags" (train only, needs --key-file).
Lines that cannot be used are told and skipped. Exit code 2: nothing could be used.
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add train, eval and inspect."""
    _add_train(_command(commands, "train", "learn from finished answers and write a model file", run_train))
    _add_eval(_command(commands, "eval", "how good the predictions are: each made before its answer is seen", run_eval))
    _add_inspect(_command(commands, "inspect", "what a model file has learned", run_inspect))


def run_train(arguments: argparse.Namespace) -> int:
    """Replay the answers through an estimator and write it."""
    console = Console(stderr=True)
    estimator = starting_estimator(arguments.init, "--init", cold=arguments.cold)
    answers = _read(arguments, console)
    found = Progressive()
    for epoch in range(arguments.epochs):
        found = _replay(estimator, answers, arguments.in_flight, console, f"epoch {epoch + 1} of {arguments.epochs}")
    if not found.learned:
        raise FlagError("--in: none of the answers taught anything; the tickets may be of another estimator")
    size = write_model(arguments.out, estimator)
    told = f"learned {found.learned} answers"
    if found.refused:
        told += f" ({found.refused} taught nothing: their length was dictated, or their ticket is of another version)"
    console.print(f"{told}; wrote {arguments.out} ({size / 1e3:.0f} kB)", highlight=False, soft_wrap=True)
    return 0


def run_eval(arguments: argparse.Namespace) -> int:
    """Print the progressive-validation table."""
    console = Console(stderr=True)
    estimator = starting_estimator(arguments.model, "--model", cold=arguments.cold)
    answers = _read(arguments, console)
    if not any(isinstance(row, Answered) for row in answers.rows):
        raise FlagError("--in: access-log entries hold no requests to predict; eval needs requests with their answers")
    evaluation = evaluate(_replay(estimator, answers, arguments.in_flight, console, "predicting and learning"))
    start = arguments.model or ("nothing" if arguments.cold else "the shipped prior")
    _stdout().print(evaluation_table(evaluation, title=f"Completion tokens, start: {start}, order: {answers.order}"))
    return 0


def run_inspect(arguments: argparse.Namespace) -> int:
    """Print what a model holds."""
    if (arguments.tenant is None) != (arguments.name_model is None):
        raise FlagError("--tenant and --name-model go together: calibration is kept for a tenant and a model")
    content = read_state(arguments.model, "--model")
    state, drifts = model_file.unpack(content), drifts_of(content)
    tenant, model = arguments.tenant or "", arguments.name_model or ""
    asked = arguments.tenant is not None
    weights = named_weights(state, tenant=tenant, model=model, most=arguments.top)
    key = key_figures(state, tenant, model, drifts) if asked else None
    names = {key_of(tenant, model): f"{tenant} with {model}"} if asked else {}
    found = inspect(state, drifts)
    console = _stdout()
    for table in inspection_tables(found, weights, key, title=str(arguments.model), names=names):
        console.print(table)
    if asked and key is None:
        console.print(f"nothing is known of tenant {tenant!r} with model {model!r}")
    return 0


def _read(arguments: argparse.Namespace, console: Console) -> Answers:
    """The answers, with a word about what was skipped."""
    answers = read_answers(
        arguments.inputs,
        order=arguments.order,
        answers_max=arguments.answers_max,
        seal=new_seal(arguments.key_file) if arguments.key_file is not None else None,
    )
    if answers.faults.count:
        console.print(f"skipped {answers.faults.count} lines", highlight=False)
        for line in answers.faults.lines():
            console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
    if answers.left_out:
        console.print(f"only the first {len(answers.rows)} answers are used", highlight=False)
    return answers


def _replay(estimator: NgramEstimator, answers: Answers, in_flight: int, console: Console, what: str) -> Progressive:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=len(answers.rows))
        return replay(estimator, answers.rows, in_flight=in_flight, on_progress=lambda: progress.advance(task))


def _stdout() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=_WIDTH)


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    what: str,
    run: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=what,
        description=f"{what[0].upper()}{what[1:]}.",
        epilog=None if name == "inspect" else _FORMATS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def _add_train(parser: argparse.ArgumentParser) -> None:
    _add_inputs(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="MODEL", help="model file to write")
    parser.add_argument("--init", type=Path, metavar="MODEL", help=_INIT_HELP)
    parser.add_argument(
        "--epochs", type=whole(1, EPOCHS_MAX), default=1, help="passes over it all (default %(default)s)"
    )
    parser.add_argument(
        "--key-file", type=Path, metavar="FILE", help="key of the service, to open the tickets in access-log entries"
    )


def _add_eval(parser: argparse.ArgumentParser) -> None:
    _add_inputs(parser)
    parser.add_argument("--model", type=Path, metavar="MODEL", help="model to start from (default: the shipped prior)")
    parser.set_defaults(key_file=None)


def _add_inspect(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", type=Path, required=True, metavar="MODEL", help="model file to read")
    parser.add_argument("--tenant", metavar="NAME", help="a tenant whose figures are wanted, with --name-model")
    parser.add_argument("--name-model", metavar="NAME", help="the model's name that the tenant asks for")
    parser.add_argument("--top", type=whole(1, 1000), default=20, help="weights shown (default %(default)s)")


def _add_inputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--in", dest="inputs", type=Path, nargs="+", required=True, metavar="FILE", help="see below")
    parser.add_argument("--cold", action="store_true", help="start from nothing, without the shipped prior")
    parser.add_argument(
        "--order",
        type=Order,
        choices=tuple(Order),
        default=Order.AUTO,
        help="auto: by time where every line says it, as in the file for access logs, else shuffled",
    )
    parser.add_argument(
        "--in-flight",
        type=whole(0, 10_000),
        default=IN_FLIGHT,
        metavar="N",
        help="requests predicted before an answer is learned (default %(default)s)",
    )
    parser.add_argument(
        "--answers-max",
        type=whole(1, 10_000),
        default=ANSWERS_MAX,
        metavar="N",
        help="answers taken of one corpus prompt (default %(default)s)",
    )
