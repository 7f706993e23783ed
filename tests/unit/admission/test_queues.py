"""What every queue must do in every order, with and without shares, and what each of these adds."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count, product
from random import Random

import pytest

from tidegate.admission.decision import Admit, Reason, Reject, Rule, Verdict
from tidegate.admission.queues.base import Waiting
from tidegate.admission.queues.fair import FairQueue
from tidegate.admission.queues.orders import AGED_AFTER_S, AGED_EVERY, Order
from tidegate.admission.queues.ranked import Ranked
from tidegate.admission.work import Work


def request(work_id: str = "new", tenant: str = "", *, weight: int = 1, budget_s: float = 2.0) -> Work:
    return Work(id=work_id, tenant=tenant, weight=weight, ttft_budget_s=budget_s)


def entry(
    work_id: str,
    tenant: str = "",
    *,
    weight: int = 1,
    since_s: float = 0.0,
    budget_s: float = 2.0,
    expires_at_s: float = 100.0,
    cost_s: float = 1.0,
) -> Waiting:
    work = request(work_id, tenant, weight=weight, budget_s=budget_s)
    return Waiting(work=work, since_s=since_s, first_s=since_s, expires_at_s=expires_at_s, cost_s=cost_s)


def admit(waiting: Waiting) -> Verdict:
    return Admit(id=waiting.work.id, reason=Reason(Rule.CAPACITY))


def refuse(waiting: Waiting) -> Verdict:
    return Reject(id=waiting.work.id, reason=Reason(Rule.EXPIRED), retry_after_s=1.0)


def dispatch(queue: FairQueue, now_s: float = 0.0) -> Waiting | None:
    """Send off the next in turn and charge its tenant, as a controller does."""
    sent: list[Waiting] = []

    def judge(waiting: Waiting) -> Verdict:
        sent.append(waiting)
        queue.charge(waiting.work, waiting.cost_s, now_s)
        return admit(waiting)

    return None if queue.pop_ready(judge, now_s) is None else sent[0]


def served(queue: FairQueue, limit: int, now_s: float = 0.0) -> list[str]:
    """The ids of the next so many, in turn."""
    sent = (dispatch(queue, now_s) for _ in range(limit))
    return [waiting.work.id for waiting in sent if waiting]


def pushed(queue: FairQueue, *entries: Waiting) -> FairQueue:
    for waiting in entries:
        queue.push(waiting)
    return queue


def next_in_turn(queue: FairQueue, now_s: float = 0.0) -> str:
    seen: list[str] = []

    def look(waiting: Waiting) -> None:
        seen.append(waiting.work.id)

    assert queue.pop_ready(look, now_s) is None
    return seen[0]


def overflow_of(queue: FairQueue, newcomer: Waiting) -> str | None:
    victim = queue.overflow(newcomer.work, cost_s=newcomer.cost_s, first_s=newcomer.since_s)
    return None if victim is None else victim.work.id


@pytest.fixture(params=product(Order, (True, False)), ids=lambda p: f"{p[0]}-{'fair' if p[1] else 'one-lane'}")
def queue(request: pytest.FixtureRequest) -> FairQueue:
    order, fair = request.param
    return FairQueue(order, fair=fair)


# every order, with and without shares


def test_all_come_out_once(queue: FairQueue) -> None:
    """Whatever the order, each one pushed is popped once, and then the queue is empty."""
    for i in range(20):
        queue.push(entry(str(i), str(i % 3), since_s=i / 10, cost_s=0.1 + i % 7))
    assert len(queue) == 20
    assert sorted(served(queue, 25), key=int) == [str(i) for i in range(20)]
    assert len(queue) == 0
    assert queue.cost_s == 0.0


def test_nobody_leaves_without_a_verdict(queue: FairQueue) -> None:
    """A candidate that the caller cannot place stays where it is."""
    queue.push(entry("a"))
    assert queue.pop_ready(lambda _: None, 0.0) is None
    assert "a" in queue
    assert served(queue, 1) == ["a"]


def test_the_one_whose_turn_it_is_is_not_passed_by(queue: FairQueue) -> None:
    """While the first in turn cannot go, nobody goes: a large request does not starve behind small ones."""
    pushed(queue, entry("x", "a"), entry("y", "b", since_s=0.5, cost_s=0.5), entry("z", "a", since_s=0.7, cost_s=2.0))
    first = next_in_turn(queue)
    assert queue.pop_ready(lambda waiting: None if waiting.work.id == first else admit(waiting), 0.0) is None
    assert len(queue) == 3
    assert served(queue, 1) == [first]


def test_withdrawing(queue: FairQueue) -> None:
    """One that no longer waits is gone at once, with its cost and its expiry; a second time there is nothing to do."""
    pushed(queue, entry("a", cost_s=2.0), entry("b", cost_s=3.0))
    assert queue.withdraw("a")
    assert not queue.withdraw("a")
    assert (len(queue), queue.cost_s) == (1, 3.0)
    assert [waiting.work.id for waiting in queue.expire(100.0)] == ["b"]


def test_expiring(queue: FairQueue) -> None:
    """Those whose time is up leave in the order of their times, and the next time is known."""
    for name, expires_at_s in [("late", 30.0), ("soon", 10.0), ("next", 20.0)]:
        queue.push(entry(name, tenant=name, expires_at_s=expires_at_s))
    assert queue.next_expiry_s() == 10.0
    assert queue.expire(9.9) == []
    assert [waiting.work.id for waiting in queue.expire(20.0)] == ["soon", "next"]
    assert queue.next_expiry_s() == 30.0


def test_clearing(queue: FairQueue) -> None:
    """Clearing gives everyone back in the order they came, and leaves nothing behind."""
    for i in range(5):
        queue.push(entry(str(i), tenant=str(i % 2), since_s=float(i), cost_s=9.0 - i))
    assert [waiting.work.id for waiting in queue.clear()] == ["0", "1", "2", "3", "4"]
    assert (len(queue), queue.cost_s, queue.next_expiry_s()) == (0, 0.0, None)


def test_an_id_waits_once(queue: FairQueue) -> None:
    """Pushing the same id twice is a bug of the caller's, and changes nothing."""
    queue.push(entry("a"))
    with pytest.raises(AssertionError):
        queue.push(entry("a", "other"))
    assert (len(queue), queue.cost_s) == (1, 1.0)


def test_an_empty_queue_has_nobody_ahead_and_makes_no_room(queue: FairQueue) -> None:
    """The first to wait has nobody and nothing before it; where nobody waits nobody can go."""
    assert queue.ahead(request(), cost_s=5.0, first_s=0.0, now_s=0.0) == (0, 0.0)
    assert overflow_of(queue, entry("new")) is None
    assert dispatch(queue) is None


def test_nobody_ahead_means_next_in_turn(queue: FairQueue) -> None:
    """A newcomer has nobody ahead exactly where it would be the next in turn, whoever has waited and been served."""
    rng, answers = Random(1), Counter[bool]()
    for i in range(600):
        now_s = i / 4
        tenant, budget_s = rng.choice("abc"), rng.choice([2.0, 60.0])
        newcomer = entry(str(i), tenant, since_s=now_s, budget_s=budget_s, expires_at_s=1e9, cost_s=rng.random())
        requests, ahead_s = queue.ahead(newcomer.work, cost_s=newcomer.cost_s, first_s=now_s, now_s=now_s)
        assert 0 <= requests <= len(queue)
        assert 0.0 <= ahead_s <= queue.cost_s
        assert (requests == 0) <= (ahead_s == 0.0)
        queue.push(newcomer)
        assert (requests == 0) == (next_in_turn(queue, now_s) == str(i))
        answers[requests == 0] += 1
        served(queue, rng.choice([0, 1, 1, 2]), now_s)
    assert min(answers.values()) > 10


def test_the_queued_cost_does_not_drift(queue: FairQueue) -> None:
    """After thousands of comings and goings the queued cost is that of those that wait."""
    rng = Random(1)
    waiting = [entry(str(i), str(i % 5), since_s=i * 1e-3, expires_at_s=1e9, cost_s=rng.random()) for i in range(5000)]
    for i, newcomer in enumerate(waiting):
        queue.push(newcomer)
        if i >= 300:
            queue.withdraw(str(i - 300))
    assert queue.cost_s == pytest.approx(sum(newcomer.cost_s for newcomer in waiting[-300:]), rel=1e-14)


def test_a_request_with_a_long_budget_is_served(queue: FairQueue) -> None:
    """Behind endless traffic at twice the capacity that ranks ahead, it goes within 5 s and ten dispatches."""
    assert low_served_s(queue, queue_len=50) <= AGED_AFTER_S + AGED_EVERY * 0.1 + 1e-9


def low_served_s(queue: FairQueue, *, queue_len: int) -> float:
    """When the one request with a budget of 60 s goes, of a pool that takes up 0.1 s of cost in 0.1 s."""
    queue.push(entry("low", budget_s=60.0, expires_at_s=54.0, cost_s=0.1))
    for tick in range(1200):
        now_s = tick * 0.05
        queue.expire(now_s)
        high = entry(str(tick), since_s=now_s, expires_at_s=now_s + 1.8, cost_s=0.1)
        make_room(queue, high, queue_len)
        sent = dispatch(queue, now_s) if tick % 2 else None
        if sent and sent.work.id == "low":
            return now_s
    raise AssertionError("never served")


def make_room(queue: FairQueue, newcomer: Waiting, queue_len: int) -> None:
    """Push, as a controller does: into a full queue only where somebody in it has a lesser claim."""
    if len(queue) >= queue_len:
        victim = overflow_of(queue, newcomer)
        if victim is None:
            return
        queue.withdraw(victim)
    queue.push(newcomer)


@pytest.mark.parametrize("order", [Order.COST_DEADLINE, Order.DEADLINE, Order.LIFO])
def test_a_full_queue_does_not_drop_the_one_that_time_will_serve(order: Order) -> None:
    """In a queue of five that is always full, the oldest does not make room for those that rank ahead."""
    assert low_served_s(FairQueue(order), queue_len=5) <= AGED_AFTER_S + AGED_EVERY * 0.1 + 1e-9


# the orders

REQUESTS = [
    entry("early", since_s=0.0, budget_s=6.0, cost_s=2.0),
    entry("urgent", since_s=2.0, budget_s=1.0, cost_s=3.0),
    entry("small", since_s=3.0, budget_s=6.0, cost_s=0.5),
    entry("twin", since_s=3.0, budget_s=6.0, cost_s=0.5),
]


@pytest.mark.parametrize(
    ("order", "alpha", "expected"),
    [
        (Order.COST_DEADLINE, 3.0, ["small", "twin", "early", "urgent"]),  # 10.5 10.5 12 12, the earlier first
        (Order.COST_DEADLINE, 0.0, ["urgent", "early", "small", "twin"]),
        (Order.COST_DEADLINE, 100.0, ["small", "twin", "early", "urgent"]),
        (Order.DEADLINE, 3.0, ["urgent", "early", "small", "twin"]),
        (Order.FIFO, 3.0, ["early", "urgent", "small", "twin"]),
        (Order.LIFO, 3.0, ["small", "twin", "urgent", "early"]),
        (Order.SHORTEST, 3.0, ["small", "twin", "early", "urgent"]),
    ],
)
@pytest.mark.parametrize("fair", [True, False])
def test_the_order_within_a_tenant(order: Order, alpha: float, expected: list[str], fair: bool) -> None:
    """The smallest key goes first, and of equal keys the one that came first."""
    assert served(pushed(FairQueue(order, alpha, fair), *REQUESTS), 4) == expected


def test_only_what_ranks_ahead_goes_before_a_newcomer() -> None:
    """In one lane, requests with a key up to the newcomer's are ahead of it, with their cost, and no others."""
    queue = pushed(FairQueue(Order.DEADLINE, fair=False), *REQUESTS)
    for budget_s, expected in [(0.0, (0, 0.0)), (1.0, (1, 3.0)), (4.5, (2, 5.0)), (7.0, (4, 6.0))]:
        newcomer = request(tenant="another", budget_s=budget_s)
        assert queue.ahead(newcomer, cost_s=9.0, first_s=2.0, now_s=2.0) == expected


# shares


def flood(queue: FairQueue, tenant: str, requests: int, *, cost_s: float = 1.0) -> FairQueue:
    entries = (entry(f"{tenant}{i}", tenant, since_s=i * 1e-6, cost_s=cost_s) for i in range(requests))
    return pushed(queue, *entries)


def test_a_flood_delays_a_quiet_tenant_by_one_request() -> None:
    """Behind a thousand requests of one tenant, another's only request is served after one more of them at most."""
    queue = flood(FairQueue(), "flood", 1000)
    served(queue, 5)
    queue.push(entry("quiet", "quiet", since_s=0.1))
    assert "quiet" in served(queue, 2)


def test_without_shares_a_flood_goes_first() -> None:
    """In one lane it is the order alone that counts, whoever sends what at whatever weight."""
    queue = flood(FairQueue(Order.FIFO, fair=False), "flood", 20)
    queue.push(entry("quiet", "quiet", weight=1000, since_s=0.1))
    assert served(queue, 21)[-1] == "quiet"


def test_a_refusal_spends_no_turn() -> None:
    """A tenant whose request was refused when its turn came still has that turn."""
    queue = pushed(FairQueue(Order.FIFO), entry("a1", "a"), entry("a2", "a", since_s=0.1), entry("b1", "b"))
    queue.pop_ready(refuse, 0.0)
    assert served(queue, 2) == ["b1", "a2"]  # their counters are equal: b1 came first
    queue = pushed(FairQueue(Order.FIFO), entry("a1", "a"), entry("a2", "a"), entry("b1", "b", since_s=0.1))
    queue.pop_ready(refuse, 0.0)
    assert served(queue, 2) == ["a2", "b1"]


def test_turns_follow_cost() -> None:
    """A tenant whose requests cost a tenth goes ten times as often."""
    queue = flood(flood(FairQueue(), "large", 20, cost_s=1.0), "small", 200, cost_s=0.1)
    shares = Counter(work_id.rstrip("0123456789") for work_id in served(queue, 110))
    assert abs(shares["large"] - 10) <= 1


def test_who_asked_for_nothing_has_saved_nothing() -> None:
    """A tenant that comes back after a hundred seconds of work by others takes turns with them from then on."""
    queue = flood(FairQueue(), "a", 200)
    queue.push(entry("b-first", "b"))
    served(queue, 101)
    flood(queue, "b", 50)
    assert abs(Counter(work_id[0] for work_id in served(queue, 40))["b"] - 20) <= 1


def test_an_idle_pool_is_free() -> None:
    """A thousand seconds of work that nobody waited for delay their tenant by no more than one request."""
    queue = FairQueue()
    for i in range(1000):
        queue.charge(request(str(i), tenant="heavy"), 1.0, 0.0)
    flood(flood(queue, "quiet", 20), "heavy", 20)
    assert abs(Counter(work_id[0] for work_id in served(queue, 20))["h"] - 10) <= 1


def test_debt_fades_within_five_seconds_of_work() -> None:
    """A tenant that had a thousand seconds of work done past others that wait is passed over for five."""
    queue = flood(flood(FairQueue(), "a", 50, cost_s=0.5), "b", 50, cost_s=0.5)
    for i in range(1000):
        queue.charge(request(str(i), tenant="heavy"), 1.0, 0.0)
    flood(queue, "heavy", 50, cost_s=0.5)
    order = [work_id[0] for work_id in served(queue, 40)]
    assert 10 <= order.index("h") <= 12
    assert order[15:].count("h") == pytest.approx(8, abs=1)


def test_shares_follow_what_requests_turn_out_to_cost() -> None:
    """A tenant charged ten times too much at dispatch has its share when completions correct it."""
    queue = flood(flood(FairQueue(), "over", 400, cost_s=1.0), "true", 400, cost_s=0.1)
    running: list[Waiting] = []
    spent = Counter[str]()

    def judge(waiting: Waiting) -> Verdict:
        running.append(waiting)
        queue.charge(waiting.work, waiting.cost_s, 0.0)
        return admit(waiting)

    for i in range(400):
        queue.pop_ready(judge, 0.0)
        if i >= 200:  # before, what the running ones were charged too much weighs
            spent[running[-1].work.tenant] += 1
        if len(running) > 20:
            done = running.pop(0)
            queue.correct(done.work.tenant, 1, 0.1 - done.cost_s)
    assert spent["over"] == pytest.approx(100, abs=10)


def test_credit_is_worth_five_seconds_of_work() -> None:
    """However much too much a tenant was charged, it goes before others for five seconds of work, not for hundreds."""
    queue = flood(flood(FairQueue(), "a", 100, cost_s=0.5), "b", 100, cost_s=0.5)
    queue.correct("a", 1, -500.0)
    order = [work_id[0] for work_id in served(queue, 40)]
    assert order.index("b") == pytest.approx(10, abs=1)
    assert order[12:].count("a") == pytest.approx(14, abs=1)


def test_invented_tenants_leave_nothing_behind() -> None:
    """A hundred thousand tenants seen once take up bounded memory, and leave a busy one its share."""
    queue = flood(FairQueue(), "busy", 10)
    for i in range(100_000):
        queue.charge(request(str(i), tenant=f"invented{i}"), 1.0, 0.0)
    for i in range(1000):
        queue.push(entry(f"x{i}", f"x{i}", since_s=1.0))
        queue.withdraw(f"x{i}")
    assert len(queue._counters._above) <= 4096
    assert (len(queue._lanes), len(queue._turns), len(queue._loads), queue._weights) == (1, 1, 1, 1)
    pushed(queue, *(entry(f"new{i}", f"new{i}", since_s=1.0) for i in range(5)))
    assert served(queue, 1) == ["busy0"]


def test_endless_new_tenants_do_not_keep_an_old_one_from_its_turn() -> None:
    """Newcomers all start at the floor; a tenant above it is served by age all the same."""
    queue = FairQueue()
    queue.charge(request("before", tenant="old"), 1.0, 0.0)
    pushed(queue, entry("fresh", "fresh"), entry("old", "old", expires_at_s=1e9))
    for i in count():
        pushed(queue, *(entry(f"{i}-{j}", f"{i}-{j}", since_s=i * 0.1, budget_s=0.5) for j in range(2)))
        if served(queue, 1, i * 0.1) == ["old"]:
            break
    assert i * 0.1 <= AGED_AFTER_S + AGED_EVERY * 0.1


def test_a_weight_may_change() -> None:
    """The latest request's weight holds for its tenant, within 1 and 1000."""
    queue = pushed(FairQueue(), entry("a1", "a", weight=10**9))
    assert queue._weights == 1000
    pushed(queue, entry("b1", "b", weight=3), entry("a2", "a", weight=-5))
    assert queue._weights == 4
    queue.clear()
    assert queue._weights == 0


def test_ahead_is_bounded_by_the_turns_of_the_others() -> None:
    """A new tenant has before it what comes in its own turns; one of twice the weight has half as much."""
    queue = flood(FairQueue(), "flood", 10)
    assert queue.ahead(request(tenant="flood"), cost_s=1.0, first_s=1.0, now_s=1.0) == (10, 10.0)
    assert queue.ahead(request(tenant="quiet"), cost_s=1.0, first_s=1.0, now_s=1.0) == (1, 1.0)
    assert queue.ahead(request(tenant="quiet", weight=2), cost_s=1.0, first_s=1.0, now_s=1.0) == (1, 0.5)
    queue.push(entry("quiet", "quiet", since_s=0.5, cost_s=2.0))
    assert queue.ahead(request(tenant="quiet"), cost_s=1.0, first_s=4.0, now_s=4.0) == (3, 5.0)


def endless(tenant: str, weight: int, sizes: list[int], rng: Random) -> Iterator[Waiting]:
    """Requests of 50 or 5000 tokens at 40 us of work a token."""
    for i in count():
        tokens = rng.choice(sizes)
        yield entry(f"{tenant}{i}", tenant, weight=weight, since_s=0.0, expires_at_s=1e9, cost_s=tokens * 4e-5)


def shares_of_a_minute(queue: FairQueue, sizes: dict[str, list[int]]) -> dict[str, float]:
    """Each tenant's part of a minute's work, over its part by weight, where each always has 12 waiting."""
    rng, weights = Random(1), {"one": 1, "two": 2, "four": 4}
    requests = {tenant: endless(tenant, weights[tenant], sizes[tenant], rng) for tenant in weights}
    for tenant in weights:
        pushed(queue, *(next(requests[tenant]) for _ in range(12)))
    spent, now_s = dict.fromkeys(weights, 0.0), 0.0
    while now_s < 60.0:
        sent = dispatch(queue, now_s)
        assert sent is not None
        tenant, now_s = sent.work.tenant, now_s + sent.cost_s
        spent[tenant] += sent.cost_s
        fresh = next(requests[tenant])
        queue.push(Waiting(work=fresh.work, since_s=now_s, first_s=now_s, expires_at_s=1e9, cost_s=fresh.cost_s))
    return {tenant: spent[tenant] / now_s * 7 / weights[tenant] for tenant in weights}


MIXED = {"one": [50, 5000], "two": [50, 5000], "four": [50, 5000]}
LARGE_AND_LIGHT = {"one": [5000], "two": [50, 5000], "four": [50]}
SMALL_AND_LIGHT = {"one": [50], "two": [50, 5000], "four": [5000]}


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("sizes", [MIXED, LARGE_AND_LIGHT, SMALL_AND_LIGHT])
def test_shares_follow_weights(order: Order, sizes: dict[str, list[int]]) -> None:
    """Tenants of weights 1, 2 and 4 that send 50 and 5000 tokens get these shares of a minute, aged turns included."""
    for share in shares_of_a_minute(FairQueue(order), sizes).values():
        assert share == pytest.approx(1.0, abs=0.1)


# turns by age


def busy(order: Order = Order.LIFO, *, old_cost_s: float = 1.0) -> tuple[FairQueue, Callable[[float], str]]:
    """A queue with one old request behind endless new ones, and a dispatch from it."""
    queue, ids = pushed(FairQueue(order), entry("old", expires_at_s=1e9, cost_s=old_cost_s)), count()

    def turn(now_s: float) -> str:
        while len(queue) < 12:
            queue.push(entry(f"new{next(ids)}", since_s=now_s, expires_at_s=1e9))
        return served(queue, 1, now_s)[0]

    return queue, turn


def test_age_counts_after_five_seconds_only() -> None:
    """Until the old one has waited 5 s the order alone decides; then it is the next in turn."""
    _, turn = busy()
    assert all(turn(4.99) != "old" for _ in range(50))
    assert turn(5.0) == "old"


def test_one_turn_in_ten_is_by_age() -> None:
    """Between two turns by age there are nine others."""
    queue, turn = busy()
    for _ in range(20):
        turn(1.0)
    pushed(queue, *(entry(f"old{i}", since_s=0.5 + i / 10, expires_at_s=1e9) for i in range(3)))
    turns = [turn(7.0).rstrip("0123456789") for _ in range(31)]
    assert [place for place, name in enumerate(turns) if name == "old"] == [0, 10, 20, 30]


def test_a_large_one_waits_for_nine_times_its_cost() -> None:
    """The aged have a tenth of the work, not only of the turns."""
    _, turn = busy(old_cost_s=3.0)
    turns = [turn(6.0) for _ in range(30)]
    assert turns.index("old") == 27


def test_requests_that_never_waited_count_as_turns() -> None:
    """What is dispatched past the queue cannot keep the old one waiting."""
    queue, _ = busy()
    assert queue.ahead(request("past"), cost_s=1.0, first_s=6.0, now_s=6.0).requests == 0
    for i in range(AGED_EVERY - 1):
        queue.charge(request(f"past{i}"), 1.0, 6.0)
    assert queue.ahead(request("past"), cost_s=1.0, first_s=6.0, now_s=6.0) == (1, 1.0)
    assert served(queue, 1, 6.0) == ["old"]


def test_a_refusal_spends_no_turn_by_age() -> None:
    """Where the oldest is refused, the turn goes to the next oldest; while it cannot go, nobody does."""
    queue, turn = busy()
    for _ in range(20):
        turn(1.0)
    queue.push(entry("second", since_s=0.5, expires_at_s=1e9))
    queue.pop_ready(lambda waiting: None if waiting.work.id == "old" else admit(waiting), 6.0)
    assert "second" in queue
    queue.pop_ready(refuse, 6.0)
    assert "old" not in queue
    assert turn(6.0) == "second"


# a full queue


def test_a_full_queue_makes_room_for_a_quiet_tenant() -> None:
    """The last request of the tenant with most queued goes, whoever else waits, and nothing goes by being asked."""
    queue = pushed(flood(FairQueue(), "loud", 3), entry("m1", "middle"), entry("m2", "middle", cost_s=0.5))
    assert overflow_of(queue, entry("new", "quiet")) == "loud2"
    assert overflow_of(queue, entry("new", "middle", cost_s=1.4)) == "loud2"
    assert len(queue) == 5


def test_nobody_is_refused_for_a_heavier_newcomer() -> None:
    """A newcomer whose own tenant would have as much queued as any other, by cost and weight, displaces no other."""
    queue = pushed(flood(FairQueue(), "loud", 3), entry("m1", "middle", cost_s=2.0))
    assert overflow_of(queue, entry("new", "loud", since_s=9.0)) is None
    assert overflow_of(queue, entry("new", "middle", since_s=9.0)) is None
    assert overflow_of(queue, entry("new", "middle", weight=2, since_s=9.0)) == "loud2"


def test_within_a_tenant_the_better_rank_stays() -> None:
    """In a queue that one tenant fills, the last makes room for a newcomer that ranks ahead of it, and for no other."""
    queue = pushed(FairQueue(Order.DEADLINE), entry("first"), entry("middle", since_s=1.0), entry("last", since_s=2.0))
    assert overflow_of(queue, entry("new", since_s=3.0, budget_s=0.9)) == "last"
    assert overflow_of(queue, entry("new", since_s=3.0, budget_s=1.0)) is None


def test_the_oldest_makes_no_room_while_another_can() -> None:
    """The turn by age is the oldest one's; it is passed over, unless it is the only one of its tenant."""
    lifo = pushed(FairQueue(Order.LIFO), entry("old"), entry("middle", since_s=1.0), entry("young", since_s=2.0))
    assert overflow_of(lifo, entry("new", since_s=3.0)) == "middle"
    alone = pushed(FairQueue(Order.LIFO), entry("old"))
    assert overflow_of(alone, entry("new", since_s=3.0)) == "old"


def test_a_first_place_comes_before_a_second() -> None:
    """Many small requests do not shut out a tenant's single large one, nor take its place."""
    queue = flood(FairQueue(), "small", 40, cost_s=0.01)
    large = entry("large", "large", cost_s=30.0, since_s=1.0)
    assert overflow_of(queue, large) == "small39"
    queue.push(large)
    assert overflow_of(queue, entry("new", "small", cost_s=0.01, since_s=2.0)) is None
    assert overflow_of(queue, entry("new", "third", cost_s=0.01, since_s=2.0)) == "small39"
    assert overflow_of(queue, entry("new", "large", cost_s=30.0, since_s=2.0)) is None


def test_shares_hold_in_a_queue_that_is_always_full() -> None:
    """Shares follow weights also where a queue of 50 overflows with three times what can be done."""
    rng, queue = Random(2), FairQueue()
    tenants = {"one": (1, 0.2), "two": (2, 0.02), "four": (4, 0.002)}
    arrivals = [
        entry(f"{tenant}{i}", tenant, weight=weight, since_s=rng.uniform(0, 60), cost_s=cost_s)
        for tenant, (weight, cost_s) in tenants.items()
        for i in range(int(3 * 60 * weight / 7 / cost_s))
    ]
    arrivals.sort(key=lambda waiting: waiting.since_s)
    spent, free_s = dict.fromkeys(tenants, 0.0), 0.0
    for waiting in arrivals:
        while len(queue) and free_s <= waiting.since_s:
            sent = dispatch(queue, free_s)
            assert sent is not None
            spent[sent.work.tenant] += sent.cost_s
            free_s += sent.cost_s
        free_s = max(free_s, waiting.since_s)
        make_room(queue, waiting, 50)
    for tenant, (weight, _) in tenants.items():
        assert spent[tenant] / 60 * 7 / weight == pytest.approx(1.0, abs=0.1)


# the container


def test_the_memory_is_bounded_by_those_who_wait() -> None:
    """Twenty thousand requests that came and left leave next to nothing in a queue where one waits for long."""
    queue = pushed(FairQueue(), entry("stays", expires_at_s=1e9))
    for i in range(20_000):
        queue.push(entry(str(i), tenant=str(i), expires_at_s=1e8))
        queue.withdraw(str(i))
    assert len(queue._expiry._heap) <= 2 * len(queue) + 65
    assert (len(queue._lanes), len(queue._oldest._blocks), len(queue._counters._above)) == (1, 1, 0)


def test_thinned_out_blocks_are_joined() -> None:
    """Of ten thousand rows that all but a few left, few blocks remain; an empty container is as new."""
    ranked: Ranked[float] = Ranked()
    for i in range(10_000):
        ranked.add(str(i), float(i), 0.1)
    assert len(ranked._blocks) <= 10_000 / 32 + 1
    for i in range(10_000):
        if i % 100:
            ranked.remove(str(i))
    assert len(ranked._blocks) <= 100 / 32 + 1
    assert list(ranked) == [str(i) for i in range(0, 10_000, 100)]
    for i in range(0, 10_000, 100):
        ranked.remove(str(i))
    assert (ranked.cost_s, len(ranked), ranked._blocks) == (0.0, 0, [])


def test_a_key_that_is_not_a_number_is_refused() -> None:
    """NaN has no place in an order, and would spoil it for all others."""
    with pytest.raises(AssertionError):
        Ranked[float]().add("a", float("nan"))


@pytest.mark.parametrize(("weight", "share"), [(1, 0.25), (10, 10 / 13), (100, 100 / 103)])
def test_tenants_without_end_do_not_starve_one_that_always_waits(weight: int, share: float) -> None:
    """Beside three tenants that come for one request each, ever new ones, it has about nine tenths of its share."""
    queue, numbers, own = FairQueue(), count(), 0

    def come(tenant: str, weight: int) -> None:
        queue.push(entry(f"{next(numbers)}", tenant, weight=weight))

    for _ in range(3):
        come("acme", weight)
        come(f"once{next(numbers)}", 1)
    for _ in range(1000):
        sent = dispatch(queue, 0.0)
        assert sent is not None
        own += sent.work.tenant == "acme"
        come("acme", weight) if sent.work.tenant == "acme" else come(f"once{next(numbers)}", 1)
    assert own / 1000 >= 0.87 * share
