"""How long a simulated answer is.

Formula: length = exp(log_mean + log_sigma * z), z the normal quantile of a hash of (seed, content, index).
Reason: the same request gets the same length in every run and on every engine of a seed, whatever came before it, so
that two policies can be compared on equal work. A caller that knows the true length, as a trace does, states it.
"""

from enum import StrEnum
from hashlib import blake2b
from math import exp
from statistics import NormalDist
from typing import NamedTuple

HASH_BYTES = 8


class FinishReason(StrEnum):
    """Why an answer ended, as the API words it."""

    STOP = "stop"
    LENGTH = "length"


class Length(NamedTuple):
    """The true length of one answer, at least one token, and how it will end."""

    tokens: int
    finish_reason: FinishReason


def drawn_tokens(content: bytes, *, seed: int, index: int, log_mean: float, log_sigma: float) -> int:
    """Tokens that a model gives to this content until it stops by itself; `index` numbers the choices of a request."""
    digest = blake2b(content, digest_size=HASH_BYTES, person=f"{seed % 2**32:x}-{index % 2**24:x}".encode()).digest()
    quantile = (int.from_bytes(digest, "big") + 0.5) / 2.0 ** (8 * HASH_BYTES)
    quantile = min(max(quantile, 1e-9), 1.0 - 1e-9)
    return max(1, round(exp(log_mean + log_sigma * NormalDist().inv_cdf(quantile))))


def bounded(natural_tokens: int, *, min_tokens: int, max_tokens: int, ignore_eos: bool) -> Length:
    """The length after the caller's bounds: reaching `max_tokens` ends it, and `ignore_eos` goes on until then."""
    if ignore_eos:
        return Length(max_tokens, FinishReason.LENGTH)
    tokens = max(natural_tokens, min_tokens)
    if tokens >= max_tokens:
        return Length(max_tokens, FinishReason.LENGTH)
    return Length(tokens, FinishReason.STOP)
