"""How good were the predictions? One row of figures a tenant, their plain average, and all answers together.

    MAE       mean |y - p50|                                 MdAPE    median |y - p50| / max(y, 1)
    log-RMSE  sqrt(mean (ln(1 + y) - ln(1 + p50))^2)         tau      Kendall's tau-b of y and p50
    coverage  share of y <= p90                              pinball  mean max(.9 (y - p90), -.1 (y - p90))
    bias      sum of means / sum of y - 1

`macro` averages over tenants, so that a busy one does not speak for all; `overall` is what the service as a whole saw.
Tenants with few answers have a row, but do not count in the macro average: their figures are mostly chance.
"""

from dataclasses import dataclass, fields

import numpy as np

from tidegate_estimator.arrays import Doubles
from tidegate_estimator.kendall import kendall_tau
from tidegate_estimator.training import Progressive

MACRO_ANSWERS_MIN = 30
_LEVEL = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Figures of one group of answers; `mae` and `p90_pinball` in tokens, all others plain numbers."""

    n: int
    mae: float
    mdape: float
    log_rmse: float
    tau: float
    p90_coverage: float
    p90_pinball: float
    mean_bias: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Scores by tenant (most answers first), their average, and of all together; empty where nothing was predicted.

    Attributes:
        tenants: name and scores.
        macro: over tenants with 30 answers or more, or None where no tenant has as many; its `n` counts tenants.
        overall: of all answers as one group, or None for none.
    """

    tenants: list[tuple[str, Scores]]
    macro: Scores | None
    overall: Scores | None


def evaluate(found: Progressive) -> Evaluation:
    """The table of a progressive replay."""
    columns = [np.array(column, np.float64) for column in (found.observed, found.p50, found.p90, found.mean)]
    if not found.tenants:
        return Evaluation(tenants=[], macro=None, overall=None)
    names, places, counts = np.unique(np.array(found.tenants, object), return_inverse=True, return_counts=True)
    rows = []
    for at in np.argsort(-counts, kind="stable"):
        mine = places == at
        rows.append((str(names[at]), score(*(column[mine] for column in columns))))
    return Evaluation(tenants=rows, macro=macro_of([scores for _, scores in rows]), overall=score(*columns))


def score(observed: Doubles, p50: Doubles, p90: Doubles, mean: Doubles) -> Scores:
    """The figures of one group; all vectors in tokens, equally long, not empty."""
    off = np.abs(observed - p50)
    logs = np.log1p(observed) - np.log1p(np.maximum(p50, 0.0))
    above = observed - p90
    return Scores(
        n=len(observed),
        mae=float(off.mean()),
        mdape=float(np.median(off / np.maximum(observed, 1.0))),
        log_rmse=float(np.sqrt((logs * logs).mean())),
        tau=kendall_tau(observed, p50),
        p90_coverage=float((above <= 0.0).mean()),
        p90_pinball=float(np.maximum(_LEVEL * above, (_LEVEL - 1.0) * above).mean()),
        mean_bias=float(mean.sum() / max(observed.sum(), 1.0) - 1.0),
    )


def macro_of(rows: list[Scores], *, answers_min: int = MACRO_ANSWERS_MIN) -> Scores | None:
    """The plain average over the groups that are large enough; its `n` counts them."""
    large = [row for row in rows if row.n >= answers_min]
    if not large:
        return None
    names = [each.name for each in fields(Scores) if each.name != "n"]
    return Scores(n=len(large), **{name: sum(getattr(row, name) for row in large) / len(large) for name in names})
