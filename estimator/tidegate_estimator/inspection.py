"""What a model has learned, in figures: how much, of whom, for whom a wider source speaks, and its largest weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tidegate_estimator.feature_names import probed_rows
from tidegate_estimator.guarded import Drift
from tidegate_estimator.keys import COUNT, SUM, THETA
from tidegate_estimator.ngram_state import NgramState
from tidegate_estimator.window import key_of

_NONE: Mapping[int, Drift] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedWeight:
    """One weight of the log-mean head: `exp(weight)` is the factor on the length."""

    name: str
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftFigures:
    """How the predictions for one tenant and model have fared lately.

    Attributes:
        key: hash of tenant and model; a file holds no names.
        answers: that were compared with their prediction.
        bias: their mean distance from it, in its deviations; above 0 they are longer.
        log_miss, wider_log_miss: mean distance in ln(tokens), of its own predictions and of the wider source's.
        adrift: the wider source speaks for it.
    """

    key: int
    answers: int
    bias: float
    log_miss: float
    wider_log_miss: float
    adrift: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFigures:
    """What is known of one tenant and model.

    Attributes:
        answers: decayed number of answers behind its running mean.
        log_mean: its running mean of ln(1 + tokens), without what features add; None for no answers.
        theta: what is added to ln(p90), on top of the one of all.
        drift: None where nothing is watched: in a file that the service has not written, or before a whole answer.
    """

    answers: float
    log_mean: float | None
    theta: float
    drift: DriftFigures | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """A model in figures: rows that were taught, keys, answers (decayed), and the calibration of all.

    `watched` counts the keys whose predictions the guard compares with their answers; `adrift` are those for which the
    wider source speaks, the most biased first.
    """

    mean_rows: int
    distribution_rows: int
    keys: int
    models: int
    answers: float
    log_mean: float | None
    theta: float
    largest_key_answers: list[float]
    watched: int
    adrift: list[DriftFigures]


def inspect(state: NgramState, drifts: Mapping[int, Drift] = _NONE) -> Inspection:
    """The figures of a model, and of the guard's drifts in the same file."""
    mean = state.mean_head
    counts = sorted((float(row[COUNT]) for _, row in state.keys.items()), reverse=True)
    return Inspection(
        mean_rows=int((mean.weights != 0.0).sum()),
        distribution_rows=int(state.distribution_head.weights.any(axis=1).sum()),
        keys=len(state.keys),
        models=len(state.prompts.rows()),
        answers=mean.count,
        log_mean=mean.sum / mean.count if mean.count else None,
        theta=state.calibration.theta,
        largest_key_answers=counts[:5],
        watched=len(drifts),
        adrift=sorted((_drift(key, d) for key, d in drifts.items() if d.adrift), key=lambda each: -abs(each.bias)),
    )


def key_figures(state: NgramState, tenant: str, model: str, drifts: Mapping[int, Drift] = _NONE) -> KeyFigures | None:
    """What is known of a tenant and model; None where they were never seen, or were pushed out by others."""
    key = key_of(tenant, model)
    if key not in {known for known, _ in state.keys.items()}:
        return None
    row, drift = state.keys.find(key), drifts.get(key)
    answers = float(row[COUNT])
    return KeyFigures(
        answers=answers,
        log_mean=float(row[SUM]) / answers if answers else None,
        theta=float(row[THETA]),
        drift=None if drift is None else _drift(key, drift),
    )


def named_weights(state: NgramState, *, tenant: str = "", model: str = "", most: int = 20) -> list[NamedWeight]:
    """The largest weights of the log-mean head whose features can be named, pairs with the tenant and model given."""
    found: dict[int, tuple[float, str]] = {}
    for name, row in probed_rows(tenant, model):
        weight = float(state.mean_head.weights[row])
        if weight and row not in found:
            found[row] = (weight, name)
    largest = sorted(found.values(), key=lambda pair: -abs(pair[0]))[:most]
    return [NamedWeight(name=name, weight=weight) for weight, name in largest]


def _drift(key: int, drift: Drift) -> DriftFigures:
    return DriftFigures(
        key=key,
        answers=drift.answers,
        bias=drift.bias,
        log_miss=drift.miss,
        wider_log_miss=drift.wider_miss,
        adrift=drift.adrift,
    )
