"""Tables of an evaluation and of a model, for a terminal."""

from collections.abc import Iterable, Mapping
from math import exp, expm1
from types import MappingProxyType

from rich.markup import escape
from rich.table import Table

from tidegate_estimator.evaluation import MACRO_ANSWERS_MIN, Evaluation, Scores
from tidegate_estimator.inspection import DriftFigures, Inspection, KeyFigures, NamedWeight

TENANTS_SHOWN_MAX = 40
_NO_NAMES: Mapping[int, str] = MappingProxyType({})

_COLUMNS = ("n", "MAE", "MdAPE", "log-RMSE", "tau", "p90 cov.", "p90 pinball", "bias")


def evaluation_table(evaluation: Evaluation, *, title: str) -> Table:
    """One line a tenant, those with most answers first, then the average and all together."""
    table = Table(title=title, title_justify="left")
    table.add_column("tenant", overflow="fold")
    for column in _COLUMNS:
        table.add_column(column, justify="right")
    for name, scores in evaluation.tenants[:TENANTS_SHOWN_MAX]:
        table.add_row(name or "(none)", *figures(scores))
    hidden = len(evaluation.tenants) - TENANTS_SHOWN_MAX
    if hidden > 0:
        table.add_row(f"({hidden} more)", *[""] * len(_COLUMNS))
    table.add_section()
    if evaluation.macro is not None:
        table.add_row(f"macro (tenants with {MACRO_ANSWERS_MIN}+)", *figures(evaluation.macro))
    if evaluation.overall is not None:
        table.add_row("overall", *figures(evaluation.overall))
    return table


def figures(scores: Scores) -> Iterable[str]:
    """One row's cells."""
    yield f"{scores.n}"
    yield f"{scores.mae:.1f}"
    yield f"{scores.mdape:.3f}"
    yield f"{scores.log_rmse:.3f}"
    yield f"{scores.tau:.3f}"
    yield f"{scores.p90_coverage:.3f}"
    yield f"{scores.p90_pinball:.1f}"
    yield f"{scores.mean_bias:+.3f}"


def inspection_tables(
    found: Inspection,
    weights: list[NamedWeight],
    key: KeyFigures | None,
    *,
    title: str,
    names: Mapping[int, str] = _NO_NAMES,
) -> Iterable[Table]:
    """The model's figures, who is on the wider source, one tenant and model where asked for, the largest named weights.

    `names` of tenants and models, where they are known, by the hash that a file holds in their place.
    """
    yield _pairs(title, _model_lines(found))
    if found.adrift:
        yield _wider_table(found.adrift, names)
    if key is not None:
        yield _pairs("the tenant and model", _key_lines(key))
    if weights:
        table = Table(title="largest weights that have a name", title_justify="left")
        table.add_column("feature", overflow="fold")
        table.add_column("weight", justify="right")
        table.add_column("factor", justify="right")
        for each in weights:
            table.add_row(each.name, f"{each.weight:+.3f}", f"x {exp(each.weight):.2f}")
        yield table


def _wider_table(adrift: list[DriftFigures], names: Mapping[int, str]) -> Table:
    """One line a tenant and model, the most biased first."""
    table = Table(title="on the wider source: their own predictions have drifted off", title_justify="left")
    table.caption_justify = "left"
    table.add_column("tenant and model", overflow="fold")
    for column in ("answers", "bias, deviations", "own off by", "wider off by"):
        table.add_column(column, justify="right")
    for each in adrift[:TENANTS_SHOWN_MAX]:
        table.add_row(escape(names.get(each.key, f"{each.key:016x}")), *_drift_cells(each))
    if any(each.key not in names for each in adrift[:TENANTS_SHOWN_MAX]):
        table.caption = "hashes: a file holds no names; give --tenant and --name-model to find one"
    hidden = len(adrift) - TENANTS_SHOWN_MAX
    if hidden > 0:
        table.add_row(f"({hidden} more)", "", "", "", "")
    return table


def _drift_cells(drift: DriftFigures) -> Iterable[str]:
    yield f"{drift.answers}"
    yield f"{drift.bias:+.2f}"
    yield f"x {exp(drift.log_miss):.2f}"
    yield f"x {exp(drift.wider_log_miss):.2f}"


def _model_lines(found: Inspection) -> Iterable[tuple[str, str]]:
    yield "weights of the mean head", f"{found.mean_rows}"
    yield "rows of the distribution head", f"{found.distribution_rows}"
    yield "tenants and models", f"{found.keys}"
    yield "models with a prompt-token factor", f"{found.models}"
    yield "answers (decayed)", f"{found.answers:.0f}"
    yield "running mean of all", _tokens(found.log_mean)
    yield "p90 calibration of all", f"{found.theta:+.3f} (x {exp(found.theta):.2f})"
    yield "tenants and models watched for drift", f"{found.watched}"
    yield "on the wider source", f"{len(found.adrift)}"
    if found.largest_key_answers:
        yield "answers of the largest keys", ", ".join(f"{count:.0f}" for count in found.largest_key_answers)


def _key_lines(key: KeyFigures) -> Iterable[tuple[str, str]]:
    yield "answers (decayed)", f"{key.answers:.0f}"
    yield "running mean, without features", _tokens(key.log_mean)
    yield "p90 calibration, its own", f"{key.theta:+.3f} (x {exp(key.theta):.2f})"
    if key.drift is not None:
        yield "predicted by", "the wider source" if key.drift.adrift else "its own"
        yield "bias of late, in deviations", f"{key.drift.bias:+.2f}"
        yield "off by of late, its own and the wider source", " and ".join([*_drift_cells(key.drift)][2:])


def _tokens(log_mean: float | None) -> str:
    return "none" if log_mean is None else f"{expm1(log_mean):.0f} tokens"


def _pairs(title: str, lines: Iterable[tuple[str, str]]) -> Table:
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, figure in lines:
        table.add_row(name, figure)
    return table
