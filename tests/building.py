"""Pools as the service builds them, for tests that have the clock in hand."""

from collections.abc import Callable

from tidegate.admission.controller import Controller
from tidegate.clock import Clock
from tidegate.estimators import Estimators
from tidegate.policy import PoolPolicy
from tidegate.pools import Pool
from tidegate.turnstile import Turnstile


def builder(clock: Clock, estimators: Estimators) -> Callable[[PoolPolicy, float], Pool]:
    """What makes a pool, at its full limits from the start."""

    def build(policy: PoolPolicy, now_s: float) -> Pool:
        controller = Controller(policy.limits, engines=policy.engine_count, now_s=now_s, ramp=False)
        return Pool(
            name=policy.name,
            policy=policy,
            controller=controller,
            turnstile=Turnstile(controller, clock),
            estimator=estimators.of(policy.estimator),
            started_s=now_s,
            last_seen_s=now_s,
        )

    return build
