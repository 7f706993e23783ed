"""The queue in force: fair across tenants, in one order within each, and nobody waits for ever.

    dispatch of cost c        its tenant's counter, or the floor if that is higher, + c / weight; corrected when done
    next in turn              of the tenants that have somebody waiting, the one with the lowest counter (of equal ones
                              the one whose first request has the smaller key), and of its requests the first
    floor                     + .9 c / weights of those that wait, with each dispatch of one of them; at least the
                              lowest of their counters, at most 5 s above it; while nobody waits, that of the latest
                              dispatch
    a tenant begins to wait   counter = clip(counter, floor, floor + 5 s / weights of those that wait)
    now and then              the oldest of all, however it ranks: the starvation floor in orders.py
    a correction downwards    leaves a tenant that waits at most 5 s / weight below the lowest of the others

This is start-time fair queueing (Goyal, Vin, Cheng 1996) with costs that are corrected. What a tenant uses while nobody
waits takes nothing from anyone: the floor goes along with it, so that its debt is never more than one request. Nor does
it save up credit while it asks for little.

The floor rises of its own, because tenants that come for one request each would else all begin at it, and whoever
always waits, above it by its latest request, would never have a turn again. At the full pace of c / weights a tenant
that pauses for a moment would lose more than a tenth of its share; at .9 of it, one that always waits has nine tenths
of its own beside strangers without end.

What is left, debt from dispatches past others that wait and from costs that were underestimated, and credit from
overestimated ones, never costs others, nor itself once it begins to wait again, more than 5 s of the pool's work.

    ahead of a newcomer       own = cost of its tenant's requests that go before it
                              own + min(all that others have queued, (own + c) x weights of others / weight)

Strict order: only the request whose turn it is may go. One that does not fit holds up all behind it until enough has
been given back. Letting small ones pass would keep the engines fuller, but a large one could then wait for ever; with
strict order it waits at most for what runs now, because a request that is alone always fits.

A full queue makes room at the cost of the heaviest tenant: first of those that have more than one place, then by queued
cost per weight, the newcomer counted with its own. Its last request goes; if the newcomer is its own, only one that
ranks behind the newcomer. So everyone's first place comes before anyone's second, and no flood shuts others out,
neither of many small requests nor of a few large ones. The oldest of all, to which the next turn by age is due, is
passed over where its tenant has another.

A tenant's weight is that of its latest request, at least 1 and at most 1000. Counters above the floor are kept of at
most 4,096 tenants that do not wait; whoever is forgotten, longest untouched first, starts at the floor. Every operation
is O(log n) but for sums of one addition per block of requests (ranked.py).
"""

from collections import OrderedDict
from collections.abc import Callable
from itertools import islice
from math import ceil

from tidegate.admission.decision import Admit, Verdict
from tidegate.admission.expiry import ExpiryHeap
from tidegate.admission.queues.base import Ahead, Waiting
from tidegate.admission.queues.orders import Aging, Order, key_of
from tidegate.admission.queues.ranked import Ranked
from tidegate.admission.work import Work

_FLOOR_PACE = 0.9
_LEAD_S = 5.0  # of the pool's work: debt or credit that outlasts its occasion
_COUNTERS_MAX = 4096
_WEIGHT_MAX = 1000
_NOBODY = Ahead(0, 0.0)


class FairQueue:
    """Weighted fair across tenants, `order` within one; a single lane for all of them where `fair` is False.

    Args:
        order: of the requests of one tenant.
        alpha: seconds of patience that a second of cost weighs, for the order `cost-deadline`.
        fair: whether tenants have shares.
    """

    def __init__(self, order: Order = Order.COST_DEADLINE, alpha: float = 3.0, fair: bool = True) -> None:
        self._key = key_of(order, alpha=alpha)
        self._fair = fair
        self._waiting: dict[str, Waiting] = {}
        self._oldest: Ranked[float] = Ranked()  # ids by the time since when they count as waiting
        self._expiry = ExpiryHeap()
        self._lanes: dict[str, _Lane] = {}  # of the tenants that have somebody waiting
        self._turns: Ranked[tuple[float, float]] = Ranked()  # these tenants by counter and first key
        self._loads: Ranked[tuple[float, float]] = Ranked()  # these tenants by how much they have queued
        self._weights = 0  # of these tenants
        self._counters = _Counters()
        self._aging = Aging()

    @property
    def cost_s(self) -> float:
        return self._oldest.cost_s

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, work_id: str) -> bool:
        return work_id in self._waiting

    def ahead(self, work: Work, *, cost_s: float, first_s: float, now_s: float) -> Ahead:
        if not self._waiting:
            return _NOBODY
        tenant, weight = self._share(work.lane, work.weight)
        key = self._key(first_s, work.ttft_budget_s, cost_s)
        lane = self._lanes.get(tenant)
        oldest = self._waiting[self._oldest.first]
        by_age = self._aging.is_due(oldest, now_s)
        if not by_age and self._would_be_next(tenant, lane, key):
            return _NOBODY
        own, others = lane.entries.before(key) if lane else _NOBODY, self._others(lane)
        ratio = (self._weights - (lane.weight if lane else 0)) / weight
        requests = own.requests + min(others.requests, ceil((own.requests + 1) * ratio))
        ahead_s = own.cost_s + min(others.cost_s, (own.cost_s + cost_s) * ratio)
        if by_age:
            ahead_s = max(ahead_s, oldest.cost_s)
        return Ahead(max(requests, 1), min(ahead_s, self.cost_s))

    def overflow(self, work: Work, *, cost_s: float, first_s: float) -> Waiting | None:
        if not self._waiting:
            return None
        tenant, weight = self._share(work.lane, work.weight)
        own = self._lanes.get(tenant)
        claim = _load(1 + (len(own.entries) if own else 0), cost_s + (own.entries.cost_s if own else 0.0), weight)
        heaviest = next((name for name in islice(reversed(self._loads), 2) if name != tenant), None)
        if heaviest is not None and self._loads.key(heaviest) > claim:
            return self._waiting[self._expendable(self._lanes[heaviest])]
        if own is None:
            return None
        last = self._expendable(own)
        return self._waiting[last] if self._key(first_s, work.ttft_budget_s, cost_s) < own.entries.key(last) else None

    def push(self, waiting: Waiting) -> None:
        work = waiting.work
        assert work.id not in self._waiting, f"{work.id} already waits"
        tenant, weight = self._share(work.lane, work.weight)
        lane = self._lanes.get(tenant)
        if lane is None:
            lane = self._lanes[tenant] = _Lane(self._starting_counter(tenant), weight)
            self._weights += weight
        elif lane.weight != weight:
            self._weights += weight - lane.weight
            lane.weight = weight
        lane.entries.add(work.id, self._key(waiting.first_s, work.ttft_budget_s, waiting.cost_s), waiting.cost_s)
        self._rank(tenant, lane)
        self._waiting[work.id] = waiting
        self._oldest.add(work.id, waiting.first_s, waiting.cost_s)
        self._expiry.add(work.id, waiting.expires_at_s)

    def pop_ready(self, judge: Callable[[Waiting], Verdict | None], now_s: float) -> Verdict | None:
        if not self._waiting:
            return None
        self._note_floor()
        oldest = self._waiting[self._oldest.first]
        by_age = self._aging.is_due(oldest, now_s)
        waiting = oldest if by_age else self._waiting[self._lanes[self._turns.first].entries.first]
        self._aging.turn_of = waiting.work.id if by_age else None
        weights = self._weights
        verdict = judge(waiting)
        if isinstance(verdict, Admit):
            self._counters.floor += _FLOOR_PACE * waiting.cost_s / weights
        if verdict is not None:
            self._remove(waiting.work.id)
        return verdict

    def withdraw(self, work_id: str) -> Waiting | None:
        if work_id not in self._waiting:
            return None
        self._note_floor()
        return self._remove(work_id)

    def expire(self, now_s: float) -> list[Waiting]:
        self._note_floor()
        return [self._remove(work_id) for work_id in self._expiry.pop_ended(now_s)]

    def next_expiry_s(self) -> float | None:
        return self._expiry.next_s()

    def clear(self) -> list[Waiting]:
        self._note_floor()
        return [self._remove(work_id) for work_id in list(self._oldest)]

    def charge(self, work: Work, cost_s: float, now_s: float) -> None:
        tenant, weight = self._share(work.lane, work.weight)
        self._aging.dispatched(work.id, cost_s)
        lane = self._lanes.get(tenant)
        if lane is not None:
            lane.counter += cost_s / weight
            self._rank(tenant, lane)
            return
        counter = self._counters.of(tenant)
        if not self._waiting:
            self._counters.floor = counter
        self._counters.keep(tenant, counter + cost_s / weight)

    def correct(self, tenant: str, weight: int, cost_s: float) -> None:
        tenant, weight = self._share(tenant, weight)
        lane = self._lanes.get(tenant)
        if lane is None:
            self._counters.keep(tenant, self._counters.of(tenant) + cost_s / weight)
            return
        corrected = lane.counter + cost_s / weight
        other = next((name for name in islice(self._turns, 2) if name != tenant), None)
        if other is not None:
            corrected = max(corrected, min(lane.counter, self._lanes[other].counter - _LEAD_S / weight))
        lane.counter = corrected
        self._rank(tenant, lane)

    def _remove(self, work_id: str) -> Waiting:
        waiting = self._waiting.pop(work_id)
        self._oldest.remove(work_id)
        self._expiry.discard(work_id)
        tenant, _ = self._share(waiting.work.lane, waiting.work.weight)
        lane = self._lanes[tenant]
        lane.entries.remove(work_id)
        if len(lane.entries):
            self._rank(tenant, lane)
            return waiting
        del self._lanes[tenant]
        self._weights -= lane.weight
        self._turns.remove(tenant)
        self._loads.remove(tenant)
        self._counters.keep(tenant, lane.counter)
        return waiting

    def _rank(self, tenant: str, lane: "_Lane") -> None:
        """Put a tenant where its counter, its first request and what it has queued place it."""
        entries = lane.entries
        _place(self._turns, tenant, (lane.counter, entries.key(entries.first)))
        _place(self._loads, tenant, _load(len(entries), entries.cost_s, lane.weight))

    def _floor(self) -> float:
        if not self._lanes:
            return self._counters.floor
        lowest = self._lanes[self._turns.first].counter
        return min(max(self._counters.floor, lowest), lowest + _LEAD_S)

    def _note_floor(self) -> None:
        """Remember the floor before somebody leaves: who was alone would take it along."""
        self._counters.floor = self._floor()

    def _starting_counter(self, tenant: str) -> float:
        floor = self._floor()
        return min(max(self._counters.of(tenant), floor), floor + _LEAD_S / max(self._weights, 1))

    def _would_be_next(self, tenant: str, lane: "_Lane | None", key: float) -> bool:
        first = self._turns.first
        if lane is not None and lane.entries.key(lane.entries.first) <= key:
            return False
        counter = lane.counter if lane is not None else self._starting_counter(tenant)
        return first == tenant or (counter, key) < self._turns.key(first)

    def _others(self, lane: "_Lane | None") -> Ahead:
        """What all but one tenant have queued."""
        if lane is None:
            return Ahead(len(self), self.cost_s)
        return Ahead(len(self) - len(lane.entries), max(self.cost_s - lane.entries.cost_s, 0.0))

    def _expendable(self, lane: "_Lane") -> str:
        """The last one, unless the next turn by age is its and another can go instead."""
        last = lane.entries.last
        if last != self._oldest.first or len(lane.entries) == 1:
            return last
        return next(islice(reversed(lane.entries), 1, None))

    def _share(self, tenant: str, weight: int) -> tuple[str, int]:
        """The lane of a tenant and its weight."""
        return (tenant, min(max(weight, 1), _WEIGHT_MAX)) if self._fair else ("", 1)


class _Lane:
    """One tenant that has somebody waiting."""

    __slots__ = ("counter", "entries", "weight")

    def __init__(self, counter: float, weight: int) -> None:
        self.counter = counter
        self.weight = weight
        self.entries: Ranked[float] = Ranked()


class _Counters:
    """Counters of the tenants that have nobody waiting; one at the floor needs no memory."""

    __slots__ = ("_above", "floor")

    def __init__(self) -> None:
        self.floor = 0.0
        self._above: OrderedDict[str, float] = OrderedDict()  # latest touched last

    def of(self, tenant: str) -> float:
        return max(self._above.get(tenant, self.floor), self.floor)

    def keep(self, tenant: str, counter: float) -> None:
        self._above.pop(tenant, None)
        if counter <= self.floor:
            return
        if len(self._above) >= _COUNTERS_MAX:
            self._above.popitem(last=False)
        self._above[tenant] = counter


def _load(requests: int, cost_s: float, weight: int) -> tuple[float, float]:
    """How much a tenant has queued, comparable with others: a single request is less than any two."""
    return float(requests > 1), cost_s / weight


def _place(ranked: Ranked[tuple[float, float]], tenant: str, key: tuple[float, float]) -> None:
    if tenant in ranked:
        if ranked.key(tenant) == key:
            return
        ranked.remove(tenant)
    ranked.add(tenant, key)
