"""All pools there are: which one a stream belongs to, which of two policy texts holds, which pool may go.

A pool comes into being with its first request and goes when it has been idle for 15 minutes. Where routes to one pool
disagree on its pool-scoped keys, the text in force stays until no stream has carried it for 60 s; then the next stream
that carries another text brings that one into force, without a restart. A bad text changes nothing: its requests run
under the last good policy of their pool.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Protocol

from tidegate.admission.controller import Controller
from tidegate.clock import Clock
from tidegate.errors import PolicyError
from tidegate.policy import PolicyReader, PoolPolicy, Reading, RequestPolicy, pairs_of, parse_policy
from tidegate.state_file import PoolState, SavedState
from tidegate.turnstile import Turnstile
from tidegate_estimator import Estimator
from tidegate_estimator.service_time import ServiceTimes
from tidegate_estimator.usage import UsageRatios

POOLS_MAX = 256
OVERFLOW = "overflow"
"""The pool that takes the requests of all pools beyond the 256th, at default limits; the name is reserved."""
TEXT_UNSEEN_S = 60.0
IDLE_S = 900.0
REPORTS_EVERY_S = 60.0


class EngineWatch(Protocol):
    """Finds the engines of a pool, listens to them, and tells the pool's controller."""

    def follow(self, policy: PoolPolicy, now_s: float) -> None:
        """Bring the controller under this policy, and look for its engines."""
        ...

    def stop(self) -> None:
        """Look and listen no more."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class Pool:
    """Engines that share one queue and one capacity.

    Attributes:
        policy: pool-scoped settings in force; `policy.text` is their text.
        last_seen_s: when the last stream came; `started_s` when the pool came into being.
        service_times: of models without tokens.
        usage: counts the tokens of answers whose engine does not.
        watch: looks after its engines; without one, they are what the policy says.
    """

    name: str
    policy: PoolPolicy
    controller: Controller
    turnstile: Turnstile
    estimator: Estimator
    started_s: float
    last_seen_s: float
    usage: UsageRatios = field(default_factory=UsageRatios)
    service_times: ServiceTimes = field(default_factory=ServiceTimes)
    watch: EngineWatch | None = None

    def follow(self, policy: PoolPolicy, now_s: float) -> None:
        """Run under this policy from now on."""
        self.policy = policy
        if self.watch is None:
            self.controller.reconfigure(policy.limits, policy.engine_count, now_s, names=policy.steered)
        else:
            self.watch.follow(policy, now_s)
        self.turnstile.tick()


class Change(StrEnum):
    """What happened to a pool; a log field."""

    STARTED = "started"
    RECONFIGURED = "reconfigured"
    CONFLICT = "conflict"  # a second pool-scoped text came while the first was still in use
    DROPPED = "dropped"
    OVERFLOWED = "overflowed"  # too many pools: the shared one has been opened
    NOT_RESTORED = "not_restored"  # saved state that could not be taken over; the pool starts afresh


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolEvent:
    """Something an operator should be able to read in the log; `details` is a short sentence or a policy text."""

    change: Change
    pool: str
    details: str = ""


@dataclass(slots=True, kw_only=True, eq=False)
class _Entry:
    """A pool and what is known of its policy texts."""

    pool: Pool
    request: RequestPolicy  # the last good one, for streams whose text is bad
    text_seen_s: float  # when a stream last carried the text in force
    rival_seen_s: float = -inf  # when a stream last carried another


def _ignore(event: PoolEvent) -> None:
    """For whoever does not want to know."""


class Pools:
    """The registry; `find` is on the path of every request and never raises.

    Args:
        build: makes a pool from its policy, with all that works for it, at a time.
        estimator_of: the estimator of a kind.
        clock: for the date in saved state only; all else is told the time.
        on_policy_error: told of each distinct bad text once, with the pool it was meant for.
        on_event: told of everything that happens to a pool, a conflict or an overflow once each time it begins.

    Attributes:
        reader: its counters say how many streams carried a bad text.
        overflowed_total: requests that went to the overflow pool.
        conflicts_total: conflicts that have begun.
    """

    def __init__(
        self,
        build: Callable[[PoolPolicy, float], Pool],
        *,
        estimator_of: Callable[[str], Estimator],
        clock: Clock,
        on_policy_error: Callable[[PolicyError, str], None],
        on_event: Callable[[PoolEvent], None] = _ignore,
    ) -> None:
        self._build = build
        self._estimator_of = estimator_of
        self._clock = clock
        self._on_event = on_event
        self._entries: dict[str, _Entry] = {}
        self._reports_at_s = -inf
        self.reader = PolicyReader(on_policy_error)
        self.overflowed_total = 0
        self.conflicts_total = 0

    def find(
        self, metadata: Iterable[tuple[str, str | bytes]], cluster_name: str, now_s: float
    ) -> tuple[Pool, RequestPolicy, str | None]:
        """Pool and request policy of a stream, and the tenant where the mesh names one.

        Args:
            metadata: the stream's gRPC initial metadata.
            cluster_name: Envoy cluster of the route, empty where it is not known.
            now_s: the time.
        """
        reading = self.reader.read(metadata, cluster_name)
        entry = self._entries.get(reading.pool)
        if entry is None:
            entry = self._open(reading, now_s)
        entry.pool.last_seen_s = now_s
        policy = reading.policy
        if policy is None:
            return entry.pool, entry.request, reading.tenant_value
        if entry.pool.name != OVERFLOW:
            entry.request = policy.request
            if policy.pool is entry.pool.policy:
                entry.text_seen_s = now_s
            else:
                self._compare(entry, policy.pool, now_s)
        return entry.pool, policy.request, reading.tenant_value

    def get(self, name: str) -> Pool | None:
        """The pool of that name, if it is alive."""
        entry = self._entries.get(name)
        return None if entry is None else entry.pool

    def __iter__(self) -> Iterator[Pool]:
        """All pools alive, the overflow pool included; safe against pools that come and go meanwhile."""
        return iter([entry.pool for entry in self._entries.values()])

    def __len__(self) -> int:
        return len(self._entries)

    def conflicts(self, now_s: float) -> list[str]:
        """Names of the pools whose routes disagreed within the last 60 s."""
        return [name for name, entry in self._entries.items() if now_s - entry.rival_seen_s < TEXT_UNSEEN_S]

    def housekeep(self, now_s: float) -> list[Pool]:
        """Drop the pools that have been idle for 15 minutes and are empty; returns them. Call it every few seconds."""
        if now_s - self._reports_at_s >= REPORTS_EVERY_S:
            self._reports_at_s = now_s
            self.reader.allow_reports()
        dropped = [pool for pool in self if now_s - pool.last_seen_s >= IDLE_S and _is_empty(pool, now_s)]
        for pool in dropped:
            del self._entries[pool.name]
            if pool.watch is not None:
                pool.watch.stop()
            self._on_event(PoolEvent(change=Change.DROPPED, pool=pool.name))
        return dropped

    def dump(self, now_s: float) -> SavedState:
        """What is worth keeping over a restart. The overflow pool is not: it belongs to nobody."""
        kept = [entry for entry in self._entries.values() if entry.pool.name != OVERFLOW]
        return SavedState(saved_at_s=self._clock.wall_s(), pools=[_saved(entry, now_s) for entry in kept])

    def restore(self, state: SavedState, now_s: float) -> None:
        """Bring saved pools back, before the first request; what cannot be taken over is reported and starts afresh.

        A restored policy yields to the first stream that carries another: the configuration may have changed meanwhile.
        """
        for saved in state.pools[:POOLS_MAX]:
            try:
                self._restore(saved, now_s)
            except (PolicyError, ValueError) as error:
                self._on_event(PoolEvent(change=Change.NOT_RESTORED, pool=saved.name, details=str(error)))

    def _open(self, reading: Reading, now_s: float) -> _Entry:
        overflows = len(self._entries) - (OVERFLOW in self._entries) >= POOLS_MAX
        if not overflows:
            if reading.policy is None:
                return self._start(PoolPolicy(name=reading.pool), RequestPolicy(), -inf, now_s)
            return self._start(reading.policy.pool, reading.policy.request, now_s, now_s)
        self.overflowed_total += 1
        entry = self._entries.get(OVERFLOW)
        if entry is None:
            details = f"more than {POOLS_MAX} pools; those beyond share one at default limits"
            self._on_event(PoolEvent(change=Change.OVERFLOWED, pool=reading.pool, details=details))
            entry = self._start(PoolPolicy(name=OVERFLOW), RequestPolicy(), now_s, now_s)
        return entry

    def _start(self, policy: PoolPolicy, request: RequestPolicy, text_seen_s: float, now_s: float) -> _Entry:
        entry = _Entry(pool=self._build(policy, now_s), request=request, text_seen_s=text_seen_s)
        self._entries[policy.name] = entry
        self._on_event(PoolEvent(change=Change.STARTED, pool=policy.name, details=policy.text))
        return entry

    def _compare(self, entry: _Entry, other: PoolPolicy, now_s: float) -> None:
        """A stream carries another record than the one in force: equal, or a rival that waits or takes over."""
        pool = entry.pool
        if other == pool.policy:
            pool.policy = other  # the same meaning: kept, so that the next stream is known without comparing
            entry.text_seen_s = now_s
        elif now_s - entry.text_seen_s >= TEXT_UNSEEN_S:
            pool.estimator = self._estimator_of(other.estimator)
            entry.text_seen_s, entry.rival_seen_s = now_s, -inf
            pool.follow(other, now_s)
            self._on_event(PoolEvent(change=Change.RECONFIGURED, pool=pool.name, details=other.text))
        else:
            begins = now_s - entry.rival_seen_s >= TEXT_UNSEEN_S
            entry.rival_seen_s = now_s
            if begins:
                self.conflicts_total += 1
                self._on_event(PoolEvent(change=Change.CONFLICT, pool=pool.name, details=other.text))

    def _restore(self, saved: PoolState, now_s: float) -> None:
        policy = parse_policy(saved.policy, default_pool=saved.name)
        if policy.pool.name in self._entries:
            raise ValueError("the pool is already there")
        pool = self._start(policy.pool, policy.request, -inf, now_s).pool
        pool.controller.restore_books(saved.books, now_s)
        pool.controller.restore_pace(saved.pace)
        pool.usage.restore(saved.usage)
        pool.service_times.restore(saved.service_times)


def _is_empty(pool: Pool, now_s: float) -> bool:
    pool.turnstile.tick()  # bookings from before a restart expire only when somebody tells the time
    gauges = pool.controller.snapshot(now_s)
    return gauges.in_flight == gauges.orphans == gauges.queue_len == 0


def _saved(entry: _Entry, now_s: float) -> PoolState:
    pool = entry.pool
    return PoolState(
        name=pool.name,
        policy=[*pairs_of(pool.policy.text), *pairs_of(entry.request.text)],
        books=pool.controller.dump_books(now_s),
        pace=dict(pool.controller.dump_pace()),
        usage=pool.usage.dump(),
        service_times=pool.service_times.dump(),
    )
