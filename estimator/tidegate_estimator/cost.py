"""What an estimator says about one request."""

from enum import StrEnum

from msgspec import Struct


class Source(StrEnum):
    """Where an estimate came from, widest last; a metric label and a log field."""

    TENANT_MODEL = "tenant_model"
    WIDER = "wider"  # the tenant's own has drifted off; what its model answered lately
    GLOBAL = "global"
    PRIOR = "prior"
    CAP = "cap"


class CostEstimate(Struct, frozen=True, kw_only=True, gc=False):
    """The predicted cost of one request.

    Attributes:
        prompt_tokens: tokens to prefill.
        log_mean, log_sigma: the completion's length in tokens, all sequences together, as a log-normal before any cap.
        p50, p80, p90, p95, mean: completion tokens, all sequences together, after the caller's caps.
        source: what the estimate rests on.
        ticket: what `learn` needs to be told the truth later, on any replica; opaque, at most 480 bytes.
    """

    prompt_tokens: int
    log_mean: float
    log_sigma: float
    p50: float
    p80: float
    p90: float
    p95: float
    mean: float
    source: Source
    ticket: bytes
