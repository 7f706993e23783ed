"""How the shipped prior is made: trained without identities, pruned, weakened, rounded.

    train   each answer without the features of its tenant and model; the running mean stays the tenant's own, so that
            weights explain what differs within a tenant, not who it is
    prune   keep rows that answers of at least 3 tenants touched: what a single one does is its own affair
    weaken  weights x .5, residuals worth 10 answers, ln(p90) + .1, no counts, no keys
    round   weights to 1/256, sums of squares to two binary digits: both are noisier than that, and zlib likes it

Half of what the mean of all differs from the constant prior goes into the bias, so that the count behind the running
mean can start from nothing. Sums of squares are kept: fresh ones would let the first answers of one tenant overturn
what was learned.

Half strength is a compromise between two measurements. On new prompts of the sources trained on, full strength is
better. On a source left out of the training, full strength is much worse than no prior, and half strength is on average
about as good as none: better on some sources, worse on others (make_prior.py --leave-out). The strength, the margin
and the pruning were chosen on the same stream that make_prior.py reports on, so that its figures are on the kind side.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable

import numpy as np
from msgspec import structs

from tidegate_estimator import CompletionRequest, NgramEstimator, model_file
from tidegate_estimator.arrays import Floats
from tidegate_estimator.distribution_head import ROWS, DistributionHead
from tidegate_estimator.features import ROW_BITS, Features, read_features, rows_of
from tidegate_estimator.mean_head import SQUARES_START, MeanHead
from tidegate_estimator.ngram_state import NgramState
from tidegate_estimator.ngram_ticket import open_ngram_ticket
from tidegate_estimator.training import Answered

ANSWERS_A_TENANT_MAX = 2500
TENANTS_MIN = 3
STRENGTH = 0.5
RESIDUALS_WORTH = 10.0
LOG_P90_MARGIN = 0.1
_WEIGHT_STEP = 1 / 256
_SQUARES_DIGITS = 2
_NOBODY = "\0nobody"

Support = dict[int, set[str]]


def make_prior(rows: Iterable[Answered]) -> bytes:
    """The prior as the bytes of a model file."""
    estimator, support = _trained(_balanced(rows))
    return model_file.pack(_weakened(model_file.unpack(estimator.dump()), support))


def _balanced(rows: Iterable[Answered]) -> Iterable[Answered]:
    """At most so many answers of each tenant, or the largest would be all of the prior."""
    seen: Counter[str] = Counter()
    for row in rows:
        seen[row.request.tenant] += 1
        if seen[row.request.tenant] <= ANSWERS_A_TENANT_MAX:
            yield row


def _trained(rows: Iterable[Answered]) -> tuple[NgramEstimator, Support]:
    """An estimator that saw no identity, and the tenants that touched each row."""
    estimator = NgramEstimator()
    support: Support = defaultdict(set)
    for row in rows:
        ticket = open_ngram_ticket(estimator.estimate(row.request).ticket)
        assert ticket is not None, "it was made a moment ago"
        features = _anonymous(row.request)
        estimator.learn(structs.replace(ticket, features=features).pack(), row.completion_tokens, row.finish_reason)
        for at in rows_of(features).rows.tolist():
            support[at].add(row.request.tenant)
    return estimator, support


def _anonymous(request: CompletionRequest) -> Features:
    """The features that do not change with the tenant's and the model's name."""
    features = read_features(request)
    other = read_features(structs.replace(request, tenant=_NOBODY, model=_NOBODY))
    return structs.replace(features, categorical=features.categorical[features.categorical == other.categorical])


def _weakened(trained: NgramState, support: Support) -> NgramState:
    """What is kept of a trained state."""
    prior = NgramState()
    mean, distribution = prior.mean_head, prior.distribution_head
    kept = np.zeros(2**ROW_BITS, bool)
    kept[[row for row, tenants in support.items() if len(tenants) >= TENANTS_MIN]] = True
    mean.weights[kept] = _rounded(STRENGTH * trained.mean_head.weights[kept])
    mean.squares[kept] = np.maximum(_coarse(trained.mean_head.squares[kept]), np.float32(SQUARES_START))
    mean.weights[_bias_row()] += STRENGTH * (_overall(trained.mean_head) - _overall(MeanHead()))
    shared = _distribution_rows(support)
    distribution.weights[shared] = _rounded(STRENGTH * trained.distribution_head.weights[shared])
    distribution.squares[shared] = np.maximum(
        _coarse(trained.distribution_head.squares[shared]), DistributionHead().squares[shared]
    )
    bins = trained.residuals.bins
    prior.residuals.bins = bins * (RESIDUALS_WORTH / bins.sum())
    prior.calibration.theta = LOG_P90_MARGIN
    return prior


def _distribution_rows(support: Support) -> list[int]:
    """Rows of the smaller table, each of several of the larger one, that enough tenants touched."""
    tenants: Support = defaultdict(set)
    for row, names in support.items():
        tenants[row * ROWS // 2**ROW_BITS] |= names
    return sorted(row for row, names in tenants.items() if len(names) >= TENANTS_MIN)


def _overall(head: MeanHead) -> float:
    """The running mean of all, as a key without answers sees it."""
    return head.backoff(np.zeros(8, np.float32))


def _bias_row() -> int:
    """The row that every request has, its first one."""
    return int(rows_of(read_features(CompletionRequest())).rows[0])


def _rounded(weights: Floats) -> Floats:
    rounded: Floats = (np.round(weights / _WEIGHT_STEP) * _WEIGHT_STEP).astype(np.float32)
    return rounded


def _coarse(squares: Floats) -> Floats:
    mantissa, exponent = np.frexp(squares)
    unit = 2**_SQUARES_DIGITS
    coarse: Floats = np.ldexp(np.round(mantissa * unit) / unit, exponent).astype(np.float32)
    return coarse
