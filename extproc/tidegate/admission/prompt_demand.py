"""What a request that ends with its prompt (embeddings, rerank) holds of an engine at once.

With n inputs of p tokens together, B tokens a step, S slots and K KV tokens stated for an engine:

    sequences = min(n, ceil(B n / p), S)        as many inputs as one step has room for
    tokens    = min(p, K - sequences)

Its inputs go through the engine in line, a step's worth at a time, and each leaves when it has been read. So a batch of
two thousand needs neither two thousand slots nor a cache for all of it, and is never too large for an engine; what it
takes is the time of its prefill, which the prefill gate keeps short.
"""

from math import ceil
from typing import Final, NamedTuple

from tidegate.admission.limits import Limits

NO_COMPLETION: Final = {
    "log_mean": 0.0,
    "log_sigma": 0.0,  # it is known, so it is neither calibrated nor learned from
    "p50": 0.0,
    "p80": 0.0,
    "p90": 0.0,
    "p95": 0.0,
    "mean": 0.0,
}
"""What an estimate says of a completion that there will not be."""


class PromptDemand(NamedTuple):
    """Sequence slots and prompt tokens to book, each at least 1."""

    sequences: int
    prompt_tokens: int


def prompt_demand(prompt_tokens: int, inputs: int, limits: Limits) -> PromptDemand:
    """What so many inputs, of so many tokens together, hold at once."""
    tokens, inputs = max(prompt_tokens, 1), max(inputs, 1)
    sequences = min(inputs, ceil(limits.batched_tokens * inputs / tokens))
    if limits.slots is not None:
        sequences = min(sequences, limits.slots)
    if limits.kv_tokens is not None:
        tokens = min(tokens, max(limits.kv_tokens - sequences, 1))
    return PromptDemand(sequences, tokens)
