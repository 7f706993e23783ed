"""What a pool of engines can hold, and how long its queue may be."""

from dataclasses import dataclass
from enum import StrEnum

from tidegate.admission.queues.orders import Order


class Mode(StrEnum):
    """How long a request may be kept waiting: the choice between fast refusals and patience."""

    HYBRID = "hybrid"  # at most its time-to-first-token budget
    ADMISSION_FIRST = "admission-first"  # at most 300 ms: refuse early, for callers that retry elsewhere
    BACKPRESSURE_FIRST = "backpressure-first"  # up to 0.7 of the client's timeout: chats that must not be lost


class Stale(StrEnum):
    """What an engine gets whose readings are too old; meters.py says what each means."""

    OPEN = "open"
    CLOSED = "closed"
    HOLD = "hold"
    DEGRADE = "degrade"


class GateName(StrEnum):
    """What may stand between a request and an engine; the first five are in force unless others are named."""

    SLOTS = "slots"
    KV = "kv"
    PREFILL = "prefill"
    TPOT = "tpot"
    SERVICE = "service"
    CONCURRENCY = "concurrency"
    P99_WINDOW = "p99-window"
    LITTLES_LAW = "littles-law"
    MEMORY_FLOOR = "memory-floor"


GATES_DEFAULT = (GateName.SLOTS, GateName.KV, GateName.PREFILL, GateName.TPOT, GateName.SERVICE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Capacity of a pool and how it is shared out; capacity is that of one engine.

    Attributes:
        slots: sequences an engine runs at once (vLLM's max_num_seqs); None is learned, from 256 on.
        kv_tokens: tokens an engine's KV cache holds; None is learned, from 100,000 on. Only a stated figure may refuse
            a request for ever: a learned one never proves that something cannot fit.
        batched_tokens: tokens an engine handles in one step (vLLM's max_num_batched_tokens).
        queue_len: requests that may wait, an engine; None follows the rate at which they are served.
        mode: how long they may wait.
        order, alpha: who is served next; alpha weighs cost against deadline.
        fair: tenants share by weight; else all wait in one line.
        gates: what must be open, in any order.
        concurrency: requests in flight that the concurrency gate allows, in the whole pool.
        p99_target_s: engine time that the p99 window keeps to.
        memory_floor_mib: GPU memory that the memory floor keeps free.
        stale: what an engine gets that has not been read for `stale_after_s`, where it should be.
        early_reject: refuse at once what would wait too long; else it may wait as long as it can.
    """

    slots: int | None = None
    kv_tokens: int | None = None
    batched_tokens: int = 512
    queue_len: int | None = None
    mode: Mode = Mode.HYBRID
    order: Order = Order.COST_DEADLINE
    alpha: float = 3.0
    fair: bool = True
    gates: tuple[GateName, ...] = GATES_DEFAULT
    concurrency: int | None = None
    p99_target_s: float = 2.0
    memory_floor_mib: int | None = None
    stale: Stale = Stale.DEGRADE
    stale_after_s: float = 5.0
    early_reject: bool = True
