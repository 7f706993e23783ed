"""Pools as the service builds them, for tests that have the clock in hand."""

from collections.abc import Callable

from tidegate.admission.controller import Controller
from tidegate.clock import Clock, ManualClock
from tidegate.errors import PolicyError
from tidegate.estimators import Estimators
from tidegate.policy import PoolPolicy, RequestPolicy
from tidegate.pools import Change, Pool, PoolEvent, Pools
from tidegate.turnstile import Turnstile

SLOTS_8 = ("tidegate-slots-max", "8")
SLOTS_9 = ("tidegate-slots-max", "9")
SHADOW = ("tidegate-shadow", "on")
WRONG = ("tidegate-mode", "fast")


def builder(clock: Clock, estimators: Estimators) -> Callable[[PoolPolicy, float], Pool]:
    """What makes a pool, at its full limits from the start."""

    def build(policy: PoolPolicy, now_s: float) -> Pool:
        controller = Controller(
            policy.limits, engines=policy.engine_count, names=policy.steered, now_s=now_s, ramp=False
        )
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


class Site:
    """A registry with all it needs, and a record of what it said."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.errors: list[tuple[str, str]] = []
        self.events: list[PoolEvent] = []
        estimators = Estimators(None)
        self.pools = Pools(
            builder(self.clock, estimators),
            estimator_of=estimators.of,
            clock=self.clock,
            on_policy_error=self.take_error,
            on_event=self.events.append,
        )

    def take_error(self, error: PolicyError, pool: str) -> None:
        self.errors.append((error.key, pool))

    def stream(self, *pairs: tuple[str, str], cluster: str = "vllm") -> tuple[Pool, RequestPolicy]:
        pool, request, _ = self.pools.find(pairs, cluster, self.clock.now_s())
        return pool, request

    def slots(self, *pairs: tuple[str, str]) -> int:
        """Slots in force for a stream with these keys, as the controller has them."""
        pool, _ = self.stream(*pairs)
        slots = pool.policy.limits.slots
        assert slots is not None
        assert pool.controller.snapshot(self.clock.now_s()).sequences_max == slots
        return slots

    def changes(self) -> list[Change]:
        return [event.change for event in self.events]

    def housekeep(self) -> list[str]:
        return [pool.name for pool in self.pools.housekeep(self.clock.now_s())]
