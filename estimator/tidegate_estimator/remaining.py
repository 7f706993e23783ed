"""How many completion tokens an answer still has to come, from its ticket and what has come already."""

from tidegate_estimator.history import PRIOR, PRIOR_SIGMA
from tidegate_estimator.lognormal import mean_excess
from tidegate_estimator.ticket import U32_MAX, Ticket


def remaining_tokens(ticket: Ticket | None, generated_tokens: int) -> float:
    """The mean excess of the predicted log-normal under the caller's cap; by the constant prior without a ticket."""
    generated = float(min(max(generated_tokens, 0), U32_MAX))
    if ticket is None:
        return mean_excess(PRIOR.mean, PRIOR_SIGMA, generated, float(U32_MAX))
    return mean_excess(ticket.log_mean, ticket.log_sigma, generated, float(ticket.cap_tokens or U32_MAX))
