"""Whatever happens to a queue, it does what a plain list would do by the rules, and nothing is lost or doubled."""

from bisect import bisect_right
from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidegate.admission.decision import Admit, Reason, Reject, Rule, Verdict
from tidegate.admission.queues.base import Waiting
from tidegate.admission.queues.fair import FairQueue
from tidegate.admission.queues.orders import Order
from tidegate.admission.queues.ranked import Ranked
from tidegate.admission.work import Work

ALPHA = 3.0
FLOOR_PACE = 0.9
LEAD_S = 5.0
KEYS: dict[Order, Callable[[float, float, float], float]] = {
    Order.COST_DEADLINE: lambda since_s, budget_s, cost_s: since_s + budget_s + ALPHA * cost_s,
    Order.DEADLINE: lambda since_s, budget_s, cost_s: since_s + budget_s,
    Order.FIFO: lambda since_s, budget_s, cost_s: since_s,
    Order.LIFO: lambda since_s, budget_s, cost_s: -since_s,
    Order.SHORTEST: lambda since_s, budget_s, cost_s: cost_s,
}

# figures that floats hold exactly, so that sums can be compared whatever was added first
COSTS_S = st.sampled_from([0.0, 0.125, 0.25, 0.5, 1.0, 4.0])
BUDGETS_S = st.sampled_from([0.5, 2.0, 60.0])
STEPS_S = st.sampled_from([0.0, 0.0, 0.25, 1.0, 5.0])
TENANTS = st.sampled_from("abcd")
WEIGHTS = st.sampled_from([-1, 1, 2, 4])
PICK = st.integers(0, 10**6)


class Row:
    """One that waits, in the list that the queue is compared with."""

    def __init__(self, waiting: Waiting, lane: str, weight: int, key: float, number: int) -> None:
        self.waiting = waiting
        self.lane = lane
        self.weight = weight
        self.rank = (key, number)
        self.age = (waiting.since_s, number)


class QueueMachine(RuleBasedStateMachine):
    """Plays the controller to one queue, and keeps a list of its own."""

    @initialize(order=st.sampled_from(Order), fair=st.integers(0, 3).map(bool))
    def start(self, order: Order, fair: bool) -> None:
        self.queue = FairQueue(order, ALPHA, fair)
        self.order, self.fair = order, fair
        self.now_s = 0.0
        self.rows: list[Row] = []
        self.weights: dict[str, int] = {}  # of lanes: the latest request's
        self.counters: dict[str, float] = {}
        self.floor = 0.0  # as of the last time that somebody left or was dispatched
        self.others, self.others_s = 0, 0.0
        self.numbered = 0

    # what may happen

    @rule(
        tenant=TENANTS,
        weight=WEIGHTS,
        budget_s=BUDGETS_S,
        cost_s=COSTS_S,
        ttl_s=BUDGETS_S,
        step_s=STEPS_S,
        back_s=STEPS_S,
    )
    def arrive(
        self, tenant: str, weight: int, budget_s: float, cost_s: float, ttl_s: float, step_s: float, back_s: float
    ) -> None:
        self.now_s += step_s
        work = Work(id=f"w{self.numbered}", tenant=tenant, weight=weight, ttft_budget_s=budget_s)
        since_s = self.now_s - (back_s if back_s == 1.0 else 0.0)  # the second try of one that came earlier
        ahead = self.queue.ahead(work, cost_s=cost_s, first_s=since_s, now_s=since_s)
        self.check_overflow(work, cost_s, since_s)
        due = self.is_due(since_s)
        row = self.append(
            Waiting(work=work, since_s=since_s, first_s=since_s, expires_at_s=self.now_s + ttl_s, cost_s=cost_s)
        )
        assert 0 <= ahead.requests < len(self.rows)
        assert 0.0 <= ahead.cost_s <= self.cost_s() - cost_s
        own = [r for r in self.lane(row.lane) if r.rank < row.rank]
        assert ahead.requests >= len(own)
        assert ahead.cost_s >= sum(r.waiting.cost_s for r in own)
        if len(self.active()) == 1 and not due:
            assert ahead == (len(own), sum(r.waiting.cost_s for r in own))
        if due == self.is_due(since_s):
            assert (ahead.requests == 0) == (self.look(since_s) == work.id)

    @precondition(lambda self: self.rows)
    @rule(step_s=STEPS_S, verdict=st.sampled_from(["admit", "admit", "admit", "reject", "wait"]))
    def serve(self, step_s: float, verdict: str) -> None:
        self.now_s += step_s
        due = self.is_due(self.now_s)
        turns = self.next_in_turn(self.now_s)
        self.note_floor()
        asked: list[Waiting] = []

        def judge(waiting: Waiting) -> Verdict | None:
            asked.append(waiting)
            if verdict == "wait":
                return None
            if verdict == "reject":
                return Reject(id=waiting.work.id, reason=Reason(Rule.EXPIRED), retry_after_s=1.0)
            self.queue.charge(waiting.work, waiting.cost_s, self.now_s)
            return Admit(id=waiting.work.id, reason=Reason(Rule.CAPACITY))

        answer = self.queue.pop_ready(judge, self.now_s)
        assert len(asked) == 1
        assert asked[0].work.id in turns
        assert (answer is None) == (verdict == "wait")
        if answer is None:
            return
        assert answer.id == asked[0].work.id
        row = next(row for row in self.rows if row.waiting is asked[0])
        if verdict == "admit":
            self.charged(row.lane, row.weight, row.waiting.cost_s, by_age=due)
            self.floor += FLOOR_PACE * row.waiting.cost_s / sum(self.weights[name] for name in self.active())
        self.rows.remove(row)
        self.forget_below_the_floor()

    @rule(tenant=TENANTS, weight=WEIGHTS, cost_s=COSTS_S)
    def dispatch_past_the_queue(self, tenant: str, weight: int, cost_s: float) -> None:
        work = Work(id=f"w{self.numbered}", tenant=tenant, weight=weight)
        self.numbered += 1
        self.queue.charge(work, cost_s, self.now_s)
        self.charged(*self.share(work), cost_s, by_age=False)

    @rule(tenant=TENANTS, weight=WEIGHTS, cost_s=COSTS_S, sign=st.sampled_from([-1.0, 1.0]))
    def correct(self, tenant: str, weight: int, cost_s: float, sign: float) -> None:
        self.queue.correct(tenant, weight, sign * cost_s)
        lane, share = self.share(Work(id="", tenant=tenant, weight=weight))
        counter = self.counter(lane)
        corrected = counter + sign * cost_s / share
        others = [self.counters[name] for name in self.active() if name != lane]
        if lane in self.active() and others:
            corrected = max(corrected, min(counter, min(others) - LEAD_S / share))
        self.counters[lane] = corrected
        self.forget_below_the_floor()

    @precondition(lambda self: self.rows)
    @rule(pick=PICK)
    def leave(self, pick: int) -> None:
        row = self.rows[pick % len(self.rows)]
        self.note_floor()
        assert self.queue.withdraw(row.waiting.work.id)
        assert not self.queue.withdraw(row.waiting.work.id)
        self.rows.remove(row)
        self.forget_below_the_floor()

    @rule(step_s=STEPS_S)
    def expire(self, step_s: float) -> None:
        self.now_s += step_s
        self.note_floor()
        expired = self.queue.expire(self.now_s)
        assert [waiting.expires_at_s for waiting in expired] == sorted(waiting.expires_at_s for waiting in expired)
        ended = [row for row in self.rows if row.waiting.expires_at_s <= self.now_s]
        assert sorted(waiting.work.id for waiting in expired) == sorted(row.waiting.work.id for row in ended)
        self.rows = [row for row in self.rows if row not in ended]
        self.forget_below_the_floor()

    @precondition(lambda self: len(self.rows) > 12)
    @rule()
    def clear(self) -> None:
        self.note_floor()
        assert self.queue.clear() == [row.waiting for row in sorted(self.rows, key=lambda row: row.age)]
        self.rows = []
        self.forget_below_the_floor()

    # what must hold

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        assert len(self.queue) == len(self.rows)
        assert all(row.waiting.work.id in self.queue for row in self.rows)
        assert self.queue.cost_s == self.cost_s()
        assert self.queue.next_expiry_s() == min((row.waiting.expires_at_s for row in self.rows), default=None)

    def check_overflow(self, work: Work, cost_s: float, now_s: float) -> None:
        """The heaviest tenant loses its last but for the oldest of all, and the newcomer's only to a better rank."""
        victim = self.queue.overflow(work, cost_s=cost_s, first_s=now_s)
        lane, weight = self.share(work)
        loads = {name: self.load(name, self.weights[name]) for name in self.active() if name != lane}
        claim = self.load(lane, weight, more=1, more_s=cost_s)
        heaviest = max(loads.values(), default=(False, -1.0))
        if heaviest > claim:
            assert victim is not None
            loser = next(row for row in self.rows if row.waiting is victim).lane
            assert loads[loser] == heaviest
            assert victim is self.expendable(loser).waiting
        elif not self.lane(lane):
            assert victim is None
        else:
            last = self.expendable(lane)
            ranks_ahead = KEYS[self.order](now_s, work.ttft_budget_s, cost_s) < last.rank[0]
            assert victim is (last.waiting if ranks_ahead else None)

    def teardown(self) -> None:
        """In the end everyone is served, once."""
        if not hasattr(self, "queue"):
            return
        for _ in range(len(self.rows)):
            self.serve(0.0, verdict="admit")
        assert (len(self.queue), self.queue.cost_s, self.queue.next_expiry_s()) == (0, 0.0, None)

    # the rules, as a list has them

    def append(self, waiting: Waiting) -> Row:
        lane, weight = self.share(waiting.work)
        starts = self.active_floor()
        if lane not in self.active():
            lead = LEAD_S / max(sum(self.weights[name] for name in self.active()), 1)
            self.counters[lane] = min(max(self.counter(lane), starts), starts + lead)
        self.weights[lane] = weight
        key = KEYS[self.order](waiting.since_s, waiting.work.ttft_budget_s, waiting.cost_s)
        row = Row(waiting, lane, weight, key, self.numbered)
        self.numbered += 1
        self.rows.append(row)
        self.queue.push(waiting)
        return row

    def charged(self, lane: str, weight: int, cost_s: float, *, by_age: bool) -> None:
        self.others, self.others_s = (0, 0.0) if by_age else (self.others + 1, self.others_s + cost_s)
        counter = self.counter(lane)
        if not self.rows:
            self.floor = counter
        self.counters[lane] = counter + cost_s / weight
        self.forget_below_the_floor()

    def share(self, work: Work) -> tuple[str, int]:
        return (work.tenant, max(work.weight, 1)) if self.fair else ("", 1)

    def counter(self, lane: str) -> float:
        if lane in self.active():
            return self.counters[lane]
        return max(self.counters.get(lane, self.floor), self.floor)

    def forget_below_the_floor(self) -> None:
        for lane in list(self.counters):
            if lane not in self.active() and self.counters[lane] <= self.floor:
                del self.counters[lane]

    def active(self) -> set[str]:
        return {row.lane for row in self.rows}

    def lane(self, name: str) -> list[Row]:
        return sorted((row for row in self.rows if row.lane == name), key=lambda row: row.rank)

    def active_floor(self) -> float:
        if not self.rows:
            return self.floor
        lowest = min(self.counters[name] for name in self.active())
        return min(max(self.floor, lowest), lowest + LEAD_S)

    def note_floor(self) -> None:
        self.floor = self.active_floor()

    def is_due(self, now_s: float) -> bool:
        if not self.rows:
            return False
        oldest = min(self.rows, key=lambda row: row.age).waiting
        return now_s - oldest.since_s >= 5.0 and self.others >= 9 and self.others_s >= 9 * oldest.cost_s

    def next_in_turn(self, now_s: float) -> set[str]:
        """The ids of those of whom one must be next; several only where tenants are equal in all."""
        if self.is_due(now_s):
            return {min(self.rows, key=lambda row: row.age).waiting.work.id}
        firsts = [self.lane(name)[0] for name in self.active()]
        best = min((self.counters[row.lane], row.rank[0]) for row in firsts)
        return {row.waiting.work.id for row in firsts if (self.counters[row.lane], row.rank[0]) == best}

    def look(self, now_s: float) -> str:
        """Who would be asked about."""
        self.note_floor()
        asked: list[str] = []

        def judge(waiting: Waiting) -> None:
            asked.append(waiting.work.id)

        assert self.queue.pop_ready(judge, now_s) is None
        return asked[0]

    def load(self, lane: str, weight: int, *, more: int = 0, more_s: float = 0.0) -> tuple[bool, float]:
        rows = self.lane(lane)
        return len(rows) + more > 1, (sum(row.waiting.cost_s for row in rows) + more_s) / weight

    def expendable(self, lane: str) -> Row:
        rows = self.lane(lane)
        oldest = min(self.rows, key=lambda row: row.age)
        return rows[-2] if rows[-1] is oldest and len(rows) > 1 else rows[-1]

    def cost_s(self) -> float:
        return sum(row.waiting.cost_s for row in self.rows)


class RankedMachine(RuleBasedStateMachine):
    """Compares the sorted blocks with a sorted list, at lengths at which blocks are cut and joined."""

    def __init__(self) -> None:
        super().__init__()
        self.ranked: Ranked[float] = Ranked()
        self.rows: list[tuple[float, int, float]] = []
        self.added = 0

    @rule(keys=st.lists(st.integers(0, 40), min_size=1, max_size=5), cost_s=COSTS_S, times=st.integers(1, 60))
    def add(self, keys: list[int], cost_s: float, times: int) -> None:
        for key in keys * times:
            self.ranked.add(str(self.added), float(key), cost_s)
            self.rows.append((float(key), self.added, cost_s))
            self.added += 1
        self.rows.sort()

    @rule(start=st.integers(0, 400), step=st.integers(1, 7), length=st.integers(1, 300))
    def remove(self, start: int, step: int, length: int) -> None:
        gone = self.rows[start : start + length : step]
        for _, number, _ in gone:
            self.ranked.remove(str(number))
            assert str(number) not in self.ranked
        self.rows = sorted(set(self.rows) - set(gone))

    @rule(key=st.integers(-1, 41))
    def before(self, key: int) -> None:
        place = bisect_right(self.rows, float(key), key=lambda row: row[0])
        assert self.ranked.before(float(key)) == (place, sum(cost_s for _, _, cost_s in self.rows[:place]))

    @invariant()
    def is_the_sorted_list(self) -> None:
        names = [str(number) for _, number, _ in self.rows]
        assert list(self.ranked) == names
        assert list(reversed(self.ranked)) == names[::-1]
        assert len(self.ranked) == len(names)
        assert self.ranked.cost_s == sum(cost_s for _, _, cost_s in self.rows)
        if names:
            assert (self.ranked.first, self.ranked.last) == (names[0], names[-1])
            assert self.ranked.key(names[-1]) == self.rows[-1][0]

    @invariant()
    def blocks_are_neither_too_long_nor_too_many(self) -> None:
        assert all(0 < len(block) <= 128 for block in self.ranked._blocks)
        assert len(self.ranked._blocks) <= len(self.rows) / 32 + 1


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
TestRanked = RankedMachine.TestCase
TestRanked.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
