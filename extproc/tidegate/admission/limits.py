"""What a pool of engines can hold, and how long its queue may be."""

from dataclasses import dataclass
from enum import StrEnum


class Mode(StrEnum):
    """How long a request may be kept waiting: the choice between fast refusals and patience."""

    HYBRID = "hybrid"  # at most its time-to-first-token budget
    ADMISSION_FIRST = "admission-first"  # at most 300 ms: refuse early, for callers that retry elsewhere
    BACKPRESSURE_FIRST = "backpressure-first"  # up to 0.7 of the client's timeout: chats that must not be lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Capacity of a pool; figures are for one engine, the pool is booked as the sum of its engines.

    Attributes:
        slots: sequences an engine runs at once (vLLM's max_num_seqs).
        kv_tokens: tokens an engine's KV cache holds.
        batched_tokens: tokens an engine handles in one step (vLLM's max_num_batched_tokens).
        queue_len: requests that may wait, an engine.
        mode: how long they may wait.
        slots_stated, kv_tokens_stated: whether an operator stated the figure. Only then may a request be refused for
        ever: a guessed capacity never proves that something cannot fit.
    """

    slots: int = 256
    kv_tokens: int = 100_000
    batched_tokens: int = 2048
    queue_len: int = 50
    mode: Mode = Mode.HYBRID
    slots_stated: bool = False
    kv_tokens_stated: bool = False
