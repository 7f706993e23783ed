"""When a refused caller should come back.

    load        max(1, queued bottleneck seconds / (drain rate x engines)) s, at most 30 s
    no engine   5 s         shutting down   1 s: another replica takes over
    contract    when time will have lifted what stands against it, at least 1 s, at most 30 s
    too large, superseded   never
    and         at least what is left of the delay that an engine itself has asked for (see asked_delay.py)

By the time named, what waits now will have been served. Common client libraries stop retrying, or fall back to a delay
of their own, when told to wait for longer than a minute. Jitter is the caller's to add, upwards only: the core has no
randomness.
"""

from tidegate.admission.decision import OF_TENANT, Rule
from tidegate.admission.load import Load

_LOAD_S_MIN, _LOAD_S_MAX = 1.0, 30.0
_NO_ENGINE_S = 5.0
_SHUTTING_DOWN_S = 1.0
_NEVER = frozenset({Rule.REQUEST_TOO_LARGE, Rule.SUPERSEDED})


def retry_after_s(rule: Rule, load: Load) -> float | None:
    """Seconds after which a request refused by `rule` may be sent again; None where no retry can help."""
    if rule in _NEVER:
        return None
    return max(_own_s(rule, load), load.asked_delay_s)


def _own_s(rule: Rule, load: Load) -> float:
    if rule is Rule.NO_ENGINE:
        return _NO_ENGINE_S
    if rule is Rule.SHUTTING_DOWN:
        return _SHUTTING_DOWN_S
    if rule in OF_TENANT:
        lifted_s = 0.0 if load.breach is None else load.breach.retry_s
        return min(max(lifted_s, _LOAD_S_MIN), _LOAD_S_MAX)
    drained_s = load.queued_s / (load.drain_rate * max(load.width, 1))
    return min(max(drained_s, _LOAD_S_MIN), _LOAD_S_MAX)
