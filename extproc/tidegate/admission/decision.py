"""The verdicts, and the rule behind each: an exhaustive set, named the same in metrics, headers and logs."""

from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct


class Rule(StrEnum):
    """Why a verdict was reached; a metric label, a header value and a log field at once."""

    CAPACITY = "capacity"  # it fits: nothing stands against it
    SLOTS = "slots"  # no sequence slot is free
    KV_TOKENS = "kv_tokens"  # its KV tokens would not fit at the coming peak
    PREFILL = "prefill"  # the engine has prompts enough to do
    SERVICE = "service"  # as many requests without tokens run as the engine works on at once
    TPOT = "tpot"  # more prompts would make running answers too slow
    CONCURRENCY = "concurrency"  # as many requests run as an operator allows
    P99_WINDOW = "p99_window"  # the window of p99 times is full
    LITTLES_LAW = "littles_law"  # more are in flight than complete in time
    MEMORY_FLOOR = "memory_floor"  # too little GPU memory is free
    QUEUE_ORDER = "queue_order"  # it would fit, but others wait before it
    QUEUE_FULL = "queue_full"
    WAIT_TOO_LONG = "wait_too_long"  # the predicted wait is past what its deadline allows
    EXPIRED = "expired"  # it waited as long as it may
    NO_ENGINE = "no_engine"  # no engine lives
    SHUTTING_DOWN = "shutting_down"
    REQUEST_TOO_LARGE = "request_too_large"  # larger than one engine will ever hold
    TENANT_CONCURRENCY = "tenant_concurrency"  # its tenant has as many in the pool as its contract allows
    TENANT_REQUESTS = "tenant_requests"  # its tenant's requests of this minute are spent
    TENANT_TOKENS = "tenant_tokens"  # its tenant's tokens of this minute are spent
    SUPERSEDED = "superseded"  # its client has sent it again, and that try has taken its place
    NOT_REFUSABLE = "not_refusable"  # booked over the limit: an unknown API or a shadow policy


STATUS_BY_RULE: dict[Rule, int] = {
    Rule.QUEUE_FULL: 429,
    Rule.WAIT_TOO_LONG: 429,
    Rule.EXPIRED: 503,
    Rule.NO_ENGINE: 503,
    Rule.SHUTTING_DOWN: 503,
    Rule.REQUEST_TOO_LARGE: 413,
    Rule.TENANT_CONCURRENCY: 429,
    Rule.TENANT_REQUESTS: 429,
    Rule.TENANT_TOKENS: 429,
    Rule.SUPERSEDED: 409,
}
"""HTTP status of a reject: 429 the pool is loaded or the tenant has had its part, 503 it cannot serve now, 413 it never
will, 409 another try of the same request is served instead."""

OF_TENANT = frozenset({Rule.TENANT_CONCURRENCY, Rule.TENANT_REQUESTS, Rule.TENANT_TOKENS})
"""Rules of a tenant's contract: the pool may be idle."""


class Reason(Struct, frozen=True, gc=False):
    """The rule, what it measured and the threshold it compared with, in the same unit.

    `unit` is one of `sequences`, `tokens`, `requests`, `s`, `MiB`, `engines`; empty where nothing was measured.
    """

    rule: Rule
    measured: float = 0.0
    threshold: float = 0.0
    unit: str = ""

    def __str__(self) -> str:
        """As `x-tidegate-reason` shows it: `kv_tokens; measured=103200; threshold=95000; unit=tokens`."""
        if not self.unit:
            return self.rule.value
        return f"{self.rule}; measured={self.measured:.6g}; threshold={self.threshold:.6g}; unit={self.unit}"


class Admit(Struct, frozen=True, kw_only=True, gc=False):
    """Send it to an engine now; its cost is booked until `release`.

    `engine` is the address of the engine to send it to; empty where Envoy chooses. `trust`, of a request without
    tokens, says what its time will be worth as a sample (see service_book.py).
    """

    id: str
    reason: Reason
    waited_s: float = 0.0
    kv_tokens: int = 0
    engine: str = ""
    trust: float = 1.0


class Enqueue(Struct, frozen=True, kw_only=True, gc=False):
    """Keep it waiting; the final verdict comes later, at the latest when `tick` passes `expires_at_s`."""

    id: str
    reason: Reason
    expires_at_s: float


class Reject(Struct, frozen=True, kw_only=True, gc=False):
    """Refuse it; `retry_after_s` is None where no retry can help. Jitter is the caller's to add to it."""

    id: str
    reason: Reason
    retry_after_s: float | None
    waited_s: float = 0.0

    @property
    def status(self) -> int:
        """HTTP status that goes with the rule."""
        return STATUS_BY_RULE[self.reason.rule]


Verdict: TypeAlias = Admit | Reject
Decision: TypeAlias = Admit | Enqueue | Reject
