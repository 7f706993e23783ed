"""Envoy's own filters, as an operator of an inference endpoint would set them.

Their periods are in seconds of the clock, not of life: a run is too short to tell ten seconds from five.
"""

from dataclasses import dataclass
from math import ceil

from tidegate.sim.envoy_config import Config

_EXTENSIONS = "type.googleapis.com/envoy.extensions.filters.http"


def admission_control() -> Config:
    """Client-side throttling on the success rate; a 429 and every 5xx count as failures."""
    return _filter(
        "admission_control",
        "admission_control.v3.AdmissionControl",
        enabled={"default_value": True, "runtime_key": "admission_control.enabled"},
        sampling_window="10s",
        sr_threshold={"default_value": {"value": 95}, "runtime_key": "admission_control.sr_threshold"},
        aggression={"default_value": 1.5, "runtime_key": "admission_control.aggression"},
        rps_threshold={"default_value": 1, "runtime_key": "admission_control.rps_threshold"},
        max_rejection_probability={"default_value": {"value": 80}, "runtime_key": "admission_control.max_rejection"},
        success_criteria={
            "http_criteria": {"http_success_status": [{"start": 100, "end": 429}, {"start": 430, "end": 500}]}
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveTuning:
    """What is tuned of adaptive_concurrency.

    Attributes:
        percentile: of the sampled latencies, which is held against the same of the minRTT window.
        buffer_percent: how far above it may be before the limit shrinks.
        min_concurrency: what a minRTT window allows at once.
        concurrency_max: what the limit never exceeds.
    """

    percentile: float
    buffer_percent: float
    min_concurrency: int
    concurrency_max: int


def adaptive_concurrency(tuning: AdaptiveTuning) -> Config:
    """Gradient controller: sampled latency of whole answers against that of few at once, measured each minute."""
    return _filter(
        "adaptive_concurrency",
        "adaptive_concurrency.v3.AdaptiveConcurrency",
        gradient_controller_config={
            "sample_aggregate_percentile": {"value": tuning.percentile},
            "concurrency_limit_params": {
                "max_concurrency_limit": tuning.concurrency_max,
                "concurrency_update_interval": "0.1s",
            },
            "min_rtt_calc_params": {
                "interval": "60s",
                "request_count": 10,
                "min_concurrency": tuning.min_concurrency,
                "jitter": {"value": 10},
                "buffer": {"value": tuning.buffer_percent},
            },
        },
        enabled={"default_value": True, "runtime_key": "adaptive_concurrency.enabled"},
        concurrency_limit_exceeded_status={"code": "TooManyRequests"},
    )


def local_ratelimit(*, per_s: float) -> Config:
    """A token bucket of one second of the rate, filled ten times a second: bursts within it pass."""
    fill_s = 10.0 / per_s  # tokens are whole numbers, so ten at a time
    return _filter(
        "local_ratelimit",
        "local_ratelimit.v3.LocalRateLimit",
        stat_prefix="local_ratelimit",
        token_bucket={"max_tokens": max(ceil(per_s), 10), "tokens_per_fill": 10, "fill_interval": f"{fill_s:.3f}s"},
        filter_enabled={"default_value": {"numerator": 100, "denominator": "HUNDRED"}},
        filter_enforced={"default_value": {"numerator": 100, "denominator": "HUNDRED"}},
        response_headers_to_add=[{"header": {"key": "retry-after", "value": "1"}}],
    )


def _filter(name: str, message: str, **fields: object) -> Config:
    return {
        "name": f"envoy.filters.http.{name}",
        "typed_config": {"@type": f"{_EXTENSIONS}.{message}", **fields},
    }
