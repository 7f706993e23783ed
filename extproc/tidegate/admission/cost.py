"""What one request asks of an engine, in slots, KV tokens and seconds.

With p prompt tokens, o expected completion tokens of all n sequences together, tau seconds a token of one sequence, and
of one engine K KV tokens, S slots, the prefill rate rho, n_d sequences that decode and t the time of their step:

    answer_s     = o / n tau                       from the first token to the last: sequences decode side by side
    bottleneck_s = max( p / rho + th3 p^2 / 2 + o t / max(n_d, 32),     compute: prefill, then a part of each step
                        (p + o / 2n) o tau / K,                         KV cache: mean tokens held x how long / all
                        o tau / S )                                     slots: how long they are held / how many

`bottleneck_s` is how long the scarcest resource of one engine is taken: a queue of such seconds, divided by the seconds
an engine works off in one, is a waiting time whichever resource binds. All the figures on the right are learned; the
measured drain rate corrects what they still get wrong.

A request without tokens has a service time s instead, all of it before its first byte, and takes up one of the m
requests that an engine works on at once:

    answer_s     = s,   bottleneck_s = s / m
"""

from math import ceil, inf
from typing import Protocol

from msgspec import Struct

from tidegate.admission.remaining import expected_tokens
from tidegate.admission.work import Work

_TOKENS_MAX = 1_000_000_000  # keeps nonsensical figures out of floating-point overflow
_SERVICE_S_MIN, _SERVICE_S_MAX = 1e-4, 3600.0
_LOG_MEAN_KNOWN = 20.0  # so long an expected answer that the cap, where the true length stands, is what counts


class Cost(Struct, frozen=True, kw_only=True, gc=False):
    """One request's demand on one engine.

    Attributes:
        prompt_tokens, completion_tokens: to prefill, and expected of all sequences together.
        log_mean, log_sigma, completion_tokens_max: completion tokens as a log-normal, calibrated, and its cap (infinity
            where there is none).
        estimate: log-mean and log-sigma before calibration.
        sequences, kv_tokens: what is booked; never more than one whole engine, so that anything runs when it is alone.
        answer_s: from its first token to its last.
        bottleneck_s: how long it takes up the scarcest resource of one engine.
        service_s: of a request without tokens, how long an engine works on it; None for all others.
    """

    prompt_tokens: float
    completion_tokens: float
    log_mean: float
    log_sigma: float
    completion_tokens_max: float
    estimate: tuple[float, float]
    sequences: int
    kv_tokens: int
    answer_s: float
    bottleneck_s: float
    service_s: float | None = None

    @property
    def tokens(self) -> float:
        """All tokens it is expected to take."""
        return self.prompt_tokens + self.completion_tokens


class Pricing(Protocol):
    """What a price is made with: one engine's capacity and speed."""

    @property
    def slots_each(self) -> int:
        """Sequences one engine runs."""
        ...

    @property
    def kv_tokens_each(self) -> int:
        """KV tokens one engine holds."""
        ...

    @property
    def timed_each(self) -> int:
        """Requests without tokens that one engine works on at once."""
        ...

    def bottleneck_s(self, prompt_tokens: float, completion_tokens: float, sequences: int, tau_s: float) -> float:
        """Seconds such a request takes up the scarcest resource of one engine."""
        ...


def price(work: Work, engine: Pricing, *, log_mean: float, log_sigma: float, tau_s: float) -> Cost:
    """The cost of `work`, whose length is this log-normal, where one token of one sequence takes `tau_s` seconds."""
    if work.service_s is not None:
        return _timed(work.service_s, engine)
    prompt = float(min(max(work.prompt_tokens, 1), _TOKENS_MAX))
    stated = work.completion_tokens_max
    cap = inf if stated is None else float(min(max(stated, 1), _TOKENS_MAX))
    completion = min(expected_tokens(log_mean, log_sigma, cap), _TOKENS_MAX)
    sequences = min(max(work.sequences, 1), _TOKENS_MAX)
    return Cost(
        prompt_tokens=prompt,
        completion_tokens=completion,
        log_mean=log_mean,
        log_sigma=log_sigma,
        completion_tokens_max=cap,
        estimate=(work.log_mean, work.log_sigma),
        sequences=min(sequences, engine.slots_each),
        kv_tokens=min(max(ceil(prompt + completion), 1), engine.kv_tokens_each),
        answer_s=completion * tau_s / sequences,
        bottleneck_s=engine.bottleneck_s(prompt, completion, sequences, tau_s),
    )


def _timed(service_s: float, engine: Pricing) -> Cost:
    """The cost of a request without tokens: it holds no KV tokens but the one that any booking has."""
    service_s = min(max(service_s, _SERVICE_S_MIN), _SERVICE_S_MAX)
    return Cost(
        prompt_tokens=0.0,
        completion_tokens=0.0,
        log_mean=0.0,
        log_sigma=0.0,
        completion_tokens_max=0.0,
        estimate=(0.0, 0.0),
        sequences=1,
        kv_tokens=1,
        answer_s=service_s,
        bottleneck_s=service_s / engine.timed_each,
        service_s=service_s,
    )


def finished(*, prompt_tokens: int, completion_tokens: int, sequences: int) -> Work:
    """A request as work whose length is known: its price is what it really took up."""
    return Work(
        id="",
        prompt_tokens=prompt_tokens,
        completion_tokens_max=completion_tokens,
        log_mean=_LOG_MEAN_KNOWN,
        log_sigma=0.0,
        sequences=sequences,
    )
