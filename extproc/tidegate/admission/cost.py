"""What one request asks of an engine, in slots, KV tokens and seconds.

With p prompt tokens, o expected completion tokens of all n sequences together, tau seconds a token of one sequence, and
K KV tokens, S slots, MB batched tokens of one engine:

    step       t(MB) = t0 + t1 MB           t0 = 0.02 s, t1 = 5e-5 s a token
    prefill    rate = MB / t(MB)            tokens a second
    ttft_s     p / rate + t(MB) / 2         it arrives, on average, half-way through a step
    answer_s   o / n * tau                  from the first token to the last: sequences decode side by side
    bottleneck_s = max( p / rate + o t0 / 32,           compute: prefill, then decode shared by a batch of 32
                        (p + o / 2n) o tau / K,         KV cache: mean tokens held x how long / what there is
                        o tau / S )                     slots: how long they are held / how many there are

`bottleneck_s` is how long the scarcest resource of one engine is taken: a queue of such seconds, divided by the seconds
an engine works off in one, is a waiting time whichever resource binds. The step figures are priors that hold within a
factor of five over common GPUs; the measured drain rate corrects what they get wrong.
"""

from math import ceil

from msgspec import Struct

from tidegate.admission.limits import Limits
from tidegate.admission.work import Work

STEP_BASE_S = 0.02
STEP_S_PER_TOKEN = 5e-5
_DECODE_BATCH = 32.0
_LOG_MEAN_KNOWN = 20.0  # so long an expected answer that the cap, where the true length stands, is what counts
_TOKENS_MAX = 1_000_000_000  # keeps nonsensical figures out of floating-point overflow


class Cost(Struct, frozen=True, kw_only=True, gc=False):
    """One request's demand on one engine.

    Attributes:
        sequences, kv_tokens: what is booked; never more than one whole engine, so that anything runs when it is alone.
        ttft_s: from being sent to its first token, in an engine that prefills nothing else.
        answer_s: from its first token to its last.
        bottleneck_s: how long it takes up the scarcest resource of one engine.
    """

    sequences: int
    kv_tokens: int
    ttft_s: float
    answer_s: float
    bottleneck_s: float


def price(work: Work, limits: Limits, *, tau_s: float) -> Cost:
    """The cost of `work` on an engine of these limits where one token of one sequence takes `tau_s` seconds."""
    slots, kv_tokens, batched_tokens = max(limits.slots, 1), max(limits.kv_tokens, 1), max(limits.batched_tokens, 1)
    prompt = min(max(work.prompt_tokens, 0), _TOKENS_MAX)
    completion = max(work.completion_tokens, 0.0)
    if not completion < _TOKENS_MAX:  # NaN lands here too: an unknown length is never a cheap one
        completion = float(_TOKENS_MAX)
    sequences = min(max(work.sequences, 1), _TOKENS_MAX)

    step_s = STEP_BASE_S + STEP_S_PER_TOKEN * batched_tokens
    prefill_s = prompt * step_s / batched_tokens
    decode_s = completion * tau_s
    return Cost(
        sequences=min(sequences, slots),
        kv_tokens=min(max(prompt + ceil(completion), 1), kv_tokens),
        ttft_s=prefill_s + step_s / 2.0,
        answer_s=decode_s / sequences,
        bottleneck_s=max(
            prefill_s + completion * STEP_BASE_S / _DECODE_BATCH,
            (prompt + completion / (2.0 * sequences)) * decode_s / kv_tokens,
            decode_s / slots,
        ),
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
