"""First come, first served within a tenant; tenants take turns, `weight` requests at a time.

    ring of tenants that have somebody waiting; the front one may send `weight` requests, then goes to the back.
    A tenant that comes (again) joins at the back: one turn of each other tenant delays it, never a whole flood.

    a full queue makes room at the cost of the tenant with most queued cost per weight: its newest request goes, if the
    tenant still has no less queued than the newcomer's tenant then would. So a flood never shuts others out.

    ahead of a newcomer = min(all that is queued, (own tenant's queued cost + own cost) x sum of weights / own weight)

Strict order: only the request whose turn it is may go. One that does not fit holds up all behind it until enough has
been given back. Letting small ones pass would keep the engines fuller, but a large one could then wait for ever; with
strict order it waits at most for what runs now, because a request that is alone always fits.

A tenant's weight is that of its latest request, at least 1 and at most 1000. Every operation is O(1) amortised, but for
the O(log n) of the expiry times, and the look at every tenant of a queue that is full. There are never more tenants
than requests that wait.
"""

from collections import OrderedDict
from collections.abc import Callable

from tidegate.admission.decision import Admit, Verdict
from tidegate.admission.expiry import ExpiryHeap
from tidegate.admission.queues.base import Ahead, Waiting
from tidegate.admission.work import Work

_WEIGHT_MAX = 1000


class _Lane:
    """One tenant's requests, oldest first."""

    __slots__ = ("cost_s", "turns_left", "waiting", "weight")

    def __init__(self, weight: int) -> None:
        self.waiting: OrderedDict[str, Waiting] = OrderedDict()  # a plain dict scans its gaps at each removal in front
        self.weight = weight
        self.turns_left = weight
        self.cost_s = 0.0


class RoundRobin:
    """Weighted round robin across tenants, first come first served within one."""

    __slots__ = ("_cost_s", "_expiry", "_ring", "_tenants", "_weights")

    def __init__(self) -> None:
        self._ring: OrderedDict[str, _Lane] = OrderedDict()
        self._tenants: dict[str, str] = {}  # id -> tenant
        self._expiry = ExpiryHeap()
        self._cost_s = 0.0
        self._weights = 0

    @property
    def cost_s(self) -> float:
        return self._cost_s

    def __len__(self) -> int:
        return len(self._tenants)

    def __contains__(self, work_id: str) -> bool:
        return work_id in self._tenants

    def ahead(self, work: Work, cost_s: float) -> Ahead:
        weight = _weight(work)
        lane = self._ring.get(work.tenant)
        weights = self._weights + weight - (lane.weight if lane else 0)
        own_s = cost_s + (lane.cost_s if lane else 0.0)
        return Ahead(len(self._tenants), max(0.0, min(self._cost_s, own_s * weights / weight)))

    def overflow(self, work: Work, cost_s: float) -> Waiting | None:
        if not self._ring:
            return None
        own = self._ring.get(work.tenant)
        claim = (cost_s + (own.cost_s if own else 0.0)) / _weight(work)
        heaviest = max(self._ring.values(), key=lambda lane: lane.cost_s / lane.weight)
        newest = next(reversed(heaviest.waiting.values()))
        return newest if (heaviest.cost_s - newest.cost_s) / heaviest.weight >= claim else None

    def push(self, waiting: Waiting) -> None:
        work = waiting.work
        assert work.id not in self._tenants, f"{work.id} already waits"
        lane = self._ring.get(work.tenant)
        if lane is None:
            lane = self._ring[work.tenant] = _Lane(_weight(work))
            self._weights += lane.weight
        elif lane.weight != _weight(work):
            self._reweigh(lane, _weight(work))
        lane.waiting[work.id] = waiting
        lane.cost_s += waiting.cost_s
        self._cost_s += waiting.cost_s
        self._tenants[work.id] = work.tenant
        self._expiry.add(work.id, waiting.expires_at_s)

    def pop_ready(self, judge: Callable[[Waiting], Verdict | None]) -> Verdict | None:
        if not self._ring:
            return None
        tenant, lane = next(iter(self._ring.items()))
        waiting = next(iter(lane.waiting.values()))
        verdict = judge(waiting)
        if verdict is None:
            return None
        self._remove(waiting.work.id)
        if isinstance(verdict, Admit) and tenant in self._ring:  # a refusal spends no turn
            self._spend_turn(tenant, lane)
        return verdict

    def withdraw(self, work_id: str) -> bool:
        if work_id not in self._tenants:
            return False
        self._remove(work_id)
        return True

    def expire(self, now_s: float) -> list[Waiting]:
        return [self._remove(work_id) for work_id in self._expiry.pop_ended(now_s)]

    def next_expiry_s(self) -> float | None:
        return self._expiry.next_s()

    def clear(self) -> list[Waiting]:
        return [self._remove(work_id) for work_id in list(self._tenants)]

    def _remove(self, work_id: str) -> Waiting:
        tenant = self._tenants.pop(work_id)
        self._expiry.discard(work_id)
        lane = self._ring[tenant]
        waiting = lane.waiting.pop(work_id)
        lane.cost_s -= waiting.cost_s
        self._cost_s -= waiting.cost_s
        if not lane.waiting:
            del self._ring[tenant]
            self._weights -= lane.weight
        if not self._tenants:
            self._cost_s = 0.0  # sums of floats drift; an empty queue is the moment to forget that
        return waiting

    def _spend_turn(self, tenant: str, lane: _Lane) -> None:
        lane.turns_left -= 1
        if lane.turns_left <= 0:
            lane.turns_left = lane.weight
            self._ring.move_to_end(tenant)

    def _reweigh(self, lane: _Lane, weight: int) -> None:
        self._weights += weight - lane.weight
        lane.weight = weight
        lane.turns_left = min(lane.turns_left, weight)


def _weight(work: Work) -> int:
    return min(max(work.weight, 1), _WEIGHT_MAX)
