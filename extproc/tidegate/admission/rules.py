"""The decision: pure functions from a request, the load it finds and the limits to a verdict.

On arrival, the first line that applies:

    not refusable                        admit, over the limit if need be
    shutting down                        reject shutting_down
    larger than a stated limit           reject request_too_large
    its tenant's contract is used up     reject tenant_concurrency, tenant_requests or tenant_tokens; it does not wait,
                                         for what it waits for is not the pool's to give
    no engine is up                      wait if it may and the queue has room, else reject no_engine: never a 429,
                                         because the pool is not loaded, it is gone
    all gates of an engine open, and
      nobody goes before                 admit, to the most welcome of the engines that are open
    the queue has no room                reject queue_full, or whoever in it should make room for this one
    predicted first token too late       reject wait_too_long   (patience, see deadline.py)
    predicted queue wait far past what   reject wait_too_long: it would only be refused later. Time in the engine does
      gateway and client can hold        not count against the hold, so a short hold still lets the first in line wait
    else                                 wait, for at most its hold

In the queue, when its turn or its time comes: shutting down, too large (limits may have shrunk) and expired reject; no
engine or no engine whose gates are open keeps it waiting; else it is admitted. An engine that is empty is open to
whatever comes, but for the guards of the whole pool.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tidegate.admission.cost import Cost
from tidegate.admission.deadline import PATIENCE_HOLDS, hold_s, hold_s_max, patience_s
from tidegate.admission.decision import Admit, Decision, Enqueue, Reason, Reject, Rule, Verdict
from tidegate.admission.gates import GATES
from tidegate.admission.gates.base import Gate
from tidegate.admission.limits import Limits
from tidegate.admission.load import EngineLoad, Load, TimedLoad
from tidegate.admission.queues.base import Waiting
from tidegate.admission.retry import retry_after_s
from tidegate.admission.work import Work

_SHUTTING_DOWN = Reason(Rule.SHUTTING_DOWN)
_SUPERSEDED = Reason(Rule.SUPERSEDED)
_NO_ENGINE = Reason(Rule.NO_ENGINE, 0.0, 1.0, "engines")
_NONE_TIMED = TimedLoad()
_MEASURED_MAX = 1_000_000_000  # callers write integers that no float holds


class Choice(NamedTuple):
    """An engine to send a request to, or why there is none; `engine` is None only where no engine is up."""

    engine: EngineLoad | None
    refusal: Reason | None


def choose(work: Work, load: Load, limits: Limits, gates: Sequence[Gate]) -> Choice:
    """The most welcome engine whose gates are open; else the most welcome of all, with what its gates say."""
    closed: Choice | None = None
    for engine in load.engines:
        refusal = _first_refusal(work, load, engine, limits, gates)
        if refusal is None:
            return Choice(engine, None)
        closed = closed or Choice(engine, refusal)
    return closed or Choice(None, _NO_ENGINE)


def decide(work: Work, load: Load, limits: Limits, *, now_s: float, gates: Sequence[Gate]) -> Decision:
    """The decision on a request that arrives now."""
    choice = choose(work, load, limits, gates)
    if not work.refusable:
        return _admit(work, load, choice)
    if load.draining:
        return _reject(work, load, _SHUTTING_DOWN)
    if too_large := _too_large(work, limits):
        return _reject(work, load, too_large)
    if load.breach is not None:
        return _reject(work, load, load.breach.reason)
    if choice.refusal is None and load.ahead_len == 0:
        return _admit(work, load, choice)
    return _wait_or_reject(work, load, limits, choice, now_s)


def reconsider(
    waiting: Waiting, load: Load, limits: Limits, *, now_s: float, gates: Sequence[Gate]
) -> Verdict | Reason:
    """The verdict on a request in the queue whose turn or whose time has come, or what keeps it waiting."""
    work = waiting.work
    waited_s = now_s - waiting.since_s
    if load.draining:
        return _reject(work, load, _SHUTTING_DOWN, waited_s)
    if too_large := _too_large(work, limits):
        return _reject(work, load, too_large, waited_s)
    choice = choose(work, load, limits, gates)
    allowed_s = min(_hold_s(work, load, limits, choice.engine), waiting.expires_at_s - waiting.since_s)
    if now_s >= waiting.expires_at_s or waited_s > allowed_s:
        expired = _NO_ENGINE if choice.engine is None else Reason(Rule.EXPIRED, waited_s, allowed_s, "s")
        return _reject(work, load, expired, waited_s)
    return choice.refusal or _admit(work, load, choice, waited_s=waited_s)


def supersede(waiting: Waiting, *, now_s: float) -> Reject:
    """The verdict on a request in the queue whose client has sent it again."""
    return Reject(id=waiting.work.id, reason=_SUPERSEDED, retry_after_s=None, waited_s=now_s - waiting.since_s)


def evict(waiting: Waiting, load: Load, *, now_s: float) -> Reject:
    """The verdict on a request in a full queue that makes room for another."""
    full = Reason(Rule.QUEUE_FULL, load.queue_len, load.queue_len_max, "requests")
    return _reject(waiting.work, load, full, now_s - waiting.since_s)


def gates_of(limits: Limits) -> tuple[Gate, ...]:
    """The gates in force, in the order they are asked."""
    return tuple(gate for name, gate in GATES.items() if name in limits.gates)


def _first_refusal(work: Work, load: Load, engine: EngineLoad, limits: Limits, gates: Sequence[Gate]) -> Reason | None:
    empty = engine.sequences == 0
    for gate in gates:
        if (gate.always or not empty) and (refusal := gate.refusal(work, load, engine, limits)):
            return refusal
    return None


def _too_large(work: Work, limits: Limits) -> Reason | None:
    """Whether one engine can never hold it, as far as an operator has stated what an engine holds."""
    if limits.slots is not None and work.sequences > limits.slots:
        return Reason(Rule.REQUEST_TOO_LARGE, min(work.sequences, _MEASURED_MAX), limits.slots, "sequences")
    tokens_min = work.prompt_tokens + max(work.sequences, 1)  # its prompt, and one token of each sequence
    if limits.kv_tokens is not None and tokens_min > limits.kv_tokens:
        return Reason(Rule.REQUEST_TOO_LARGE, min(tokens_min, _MEASURED_MAX), limits.kv_tokens, "tokens")
    return None


def _wait_or_reject(work: Work, load: Load, limits: Limits, choice: Choice, now_s: float) -> Enqueue | Reject:
    reason = choice.refusal or Reason(Rule.QUEUE_ORDER, load.ahead_len, 0.0, "requests")
    hold = _hold_s(work, load, limits, choice.engine)
    full = load.queue_len >= load.queue_len_max
    if choice.engine is None:
        if hold <= 0.0 or full:
            return _reject(work, load, _NO_ENGINE)
    elif full and not load.makes_room:
        return _reject(work, load, Reason(Rule.QUEUE_FULL, load.queue_len, load.queue_len_max, "requests"))
    elif too_long := _wait_too_long(work, load, limits, choice.engine, hold):
        return _reject(work, load, too_long)
    return Enqueue(id=work.id, reason=reason, expires_at_s=now_s + hold)


def _wait_too_long(work: Work, load: Load, limits: Limits, engine: EngineLoad, hold: float) -> Reason | None:
    if hold <= 0.0:
        return Reason(Rule.WAIT_TOO_LONG, load.queue_wait_s, hold, "s")
    if not limits.early_reject:
        return None
    patience, wait_s = patience_s(work, limits), load.queue_wait_s
    first_token_s = wait_s + _ttft_s(load.cost, engine)
    if first_token_s > patience:
        return Reason(Rule.WAIT_TOO_LONG, first_token_s, patience, "s")
    longest_s = PATIENCE_HOLDS * hold_s_max(work, limits.mode)
    return Reason(Rule.WAIT_TOO_LONG, wait_s, longest_s, "s") if wait_s > longest_s else None


def _hold_s(work: Work, load: Load, limits: Limits, engine: EngineLoad | None) -> float:
    ttft_s = 0.0 if engine is None else _ttft_s(load.cost, engine)
    answer_s = load.cost.answer_s if load.cost.service_s is None else 0.0
    return hold_s(work, limits.mode, ttft_s=ttft_s, answer_s=answer_s, pressure_s=load.pressure_s)


def _ttft_s(cost: Cost, engine: EngineLoad) -> float:
    """From being sent to it to the first byte; where there are no tokens, nothing comes before the whole answer."""
    return engine.ttft_s(cost.prompt_tokens) if cost.service_s is None else cost.service_s


def _admit(work: Work, load: Load, choice: Choice, waited_s: float = 0.0) -> Admit:
    engine, refusal = choice
    timed = _NONE_TIMED if engine is None or load.cost.service_s is None else engine.timed_load()
    if refusal is not None:
        reason = Reason(Rule.NOT_REFUSABLE, refusal.measured, refusal.threshold, refusal.unit)
    else:
        assert engine is not None, "a request goes nowhere"
        if load.cost.service_s is None:
            reason = Reason(Rule.CAPACITY, engine.sequences + load.cost.sequences, engine.slots, "sequences")
        else:
            reason = Reason(Rule.CAPACITY, timed.running + 1, timed.most, "requests")
    return Admit(
        id=work.id,
        reason=reason,
        waited_s=waited_s,
        kv_tokens=load.cost.kv_tokens,
        engine="" if engine is None else engine.name,
        trust=timed.trust,
    )


def _reject(work: Work, load: Load, reason: Reason, waited_s: float = 0.0) -> Reject:
    return Reject(id=work.id, reason=reason, retry_after_s=retry_after_s(reason.rule, load), waited_s=waited_s)
