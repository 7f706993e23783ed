"""The decision: pure functions from a request, the load it finds and the limits to a verdict.

On arrival, the first line that applies:

    not refusable                        admit, over the limit if need be
    shutting down                        reject shutting_down
    larger than a stated limit           reject request_too_large
    no engine lives                      wait if it may and the queue has room, else reject no_engine: never a 429,
                                         because the pool is not loaded, it is gone
    every gate open, nobody goes before  admit
    the queue has no room                reject queue_full, or whoever in it should make room for this one
    predicted first token too late       reject wait_too_long   (patience, see deadline.py)
    predicted queue wait past its hold   reject wait_too_long: it would only be refused later. Time in the engine does
                                         not count against the hold, so a short hold still lets the first in line wait
    else                                 wait, for at most its hold

In the queue, when its turn or its time comes: shutting down, too large (limits may have shrunk) and expired reject; no
engine or a gate that is shut keeps it waiting; else it is admitted.
"""

from collections.abc import Sequence

from tidegate.admission.deadline import hold_s, patience_s
from tidegate.admission.decision import Admit, Decision, Enqueue, Reason, Reject, Rule, Verdict
from tidegate.admission.gates import GATES, Gate
from tidegate.admission.limits import Limits
from tidegate.admission.load import Load, capacity, queue_len_max
from tidegate.admission.queues.base import Waiting
from tidegate.admission.retry import retry_after_s
from tidegate.admission.work import Work

_SHUTTING_DOWN = Reason(Rule.SHUTTING_DOWN)
_NO_ENGINE = Reason(Rule.NO_ENGINE, 0.0, 1.0, "engines")
_MEASURED_MAX = 1_000_000_000  # callers write integers that no float holds


def decide(work: Work, load: Load, limits: Limits, *, now_s: float, gates: Sequence[Gate] = GATES) -> Decision:
    """The decision on a request that arrives now."""
    refusal = _obstacle(work, load, limits, gates)
    if not work.refusable:
        return _admit(work, load, limits, refusal=refusal)
    if load.draining:
        return _reject(work, load, _SHUTTING_DOWN)
    if too_large := _too_large(work, limits):
        return _reject(work, load, too_large)
    if refusal is None and load.ahead_len == 0:
        return _admit(work, load, limits)
    return _wait_or_reject(work, load, limits, refusal, now_s)


def reconsider(
    waiting: Waiting, load: Load, limits: Limits, *, now_s: float, gates: Sequence[Gate] = GATES
) -> Verdict | None:
    """The verdict on a request in the queue whose turn or whose time has come; None keeps it waiting."""
    work = waiting.work
    waited_s = now_s - waiting.since_s
    if load.draining:
        return _reject(work, load, _SHUTTING_DOWN, waited_s)
    if too_large := _too_large(work, limits):
        return _reject(work, load, too_large, waited_s)
    allowed_s = min(hold_s(work, limits.mode, load.cost), waiting.expires_at_s - waiting.since_s)
    if now_s >= waiting.expires_at_s or waited_s > allowed_s:
        expired = _NO_ENGINE if load.engines == 0 else Reason(Rule.EXPIRED, waited_s, allowed_s, "s")
        return _reject(work, load, expired, waited_s)
    if _obstacle(work, load, limits, gates) is not None:
        return None
    return _admit(work, load, limits, waited_s=waited_s)


def evict(waiting: Waiting, load: Load, limits: Limits, *, now_s: float) -> Reject:
    """The verdict on a request in a full queue that makes room for another."""
    room = queue_len_max(limits.queue_len, engines=load.engines)
    full = Reason(Rule.QUEUE_FULL, load.queue_len, room, "requests")
    return _reject(waiting.work, load, full, now_s - waiting.since_s)


def _obstacle(work: Work, load: Load, limits: Limits, gates: Sequence[Gate]) -> Reason | None:
    """The first thing that keeps the request from an engine now, its place in the queue apart."""
    if load.engines == 0:
        return _NO_ENGINE
    for gate in gates:
        if refusal := gate.refusal(work, load, limits):
            return refusal
    return None


def _too_large(work: Work, limits: Limits) -> Reason | None:
    """Whether one engine can never hold it, as far as an operator has stated what an engine holds."""
    if limits.slots_stated and work.sequences > limits.slots:
        return Reason(Rule.REQUEST_TOO_LARGE, min(work.sequences, _MEASURED_MAX), limits.slots, "sequences")
    tokens_min = work.prompt_tokens + max(work.sequences, 1)  # its prompt, and one token of each sequence
    if limits.kv_tokens_stated and tokens_min > limits.kv_tokens:
        return Reason(Rule.REQUEST_TOO_LARGE, min(tokens_min, _MEASURED_MAX), limits.kv_tokens, "tokens")
    return None


def _wait_or_reject(work: Work, load: Load, limits: Limits, refusal: Reason | None, now_s: float) -> Enqueue | Reject:
    reason = refusal or Reason(Rule.QUEUE_ORDER, load.ahead_len, 0.0, "requests")
    hold = hold_s(work, limits.mode, load.cost)
    room = queue_len_max(limits.queue_len, engines=load.engines)
    if load.engines == 0:
        if hold <= 0.0 or load.queue_len >= room:
            return _reject(work, load, _NO_ENGINE)
    elif load.queue_len >= room and not load.makes_room:
        return _reject(work, load, Reason(Rule.QUEUE_FULL, load.queue_len, room, "requests"))
    elif too_long := _wait_too_long(work, load, limits, hold):
        return _reject(work, load, too_long)
    return Enqueue(id=work.id, reason=reason, expires_at_s=now_s + hold)


def _wait_too_long(work: Work, load: Load, limits: Limits, hold: float) -> Reason | None:
    patience = patience_s(work, limits.mode)
    if load.first_token_s > patience:
        return Reason(Rule.WAIT_TOO_LONG, load.first_token_s, patience, "s")
    if load.queue_wait_s > hold or hold <= 0.0:
        return Reason(Rule.WAIT_TOO_LONG, load.queue_wait_s, hold, "s")
    return None


def _admit(work: Work, load: Load, limits: Limits, *, refusal: Reason | None = None, waited_s: float = 0.0) -> Admit:
    if refusal is None:
        slots = capacity(limits.slots, engines=load.engines, share=load.share)
        reason = Reason(Rule.CAPACITY, load.sequences + load.cost.sequences, slots, "sequences")
    else:
        reason = Reason(Rule.NOT_REFUSABLE, refusal.measured, refusal.threshold, refusal.unit)
    return Admit(id=work.id, reason=reason, waited_s=waited_s, kv_tokens=load.cost.kv_tokens)


def _reject(work: Work, load: Load, reason: Reason, waited_s: float = 0.0) -> Reject:
    return Reject(id=work.id, reason=reason, retry_after_s=retry_after_s(reason.rule, load), waited_s=waited_s)
