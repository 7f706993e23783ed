"""What every queue discipline must do, and what round robin does besides."""

from collections import Counter
from collections.abc import Callable

import pytest

from tidegate.admission.decision import Admit, Reason, Reject, Rule, Verdict
from tidegate.admission.queues.base import Queue, Waiting
from tidegate.admission.queues.round_robin import RoundRobin

from .builders import patient

DISCIPLINES: list[Callable[[], Queue]] = [RoundRobin]


def entry(
    work_id: str, tenant: str = "", *, weight: int = 1, expires_at_s: float = 100.0, cost_s: float = 1.0
) -> Waiting:
    work = patient(work_id, tenant=tenant, weight=weight)
    return Waiting(work=work, since_s=0.0, expires_at_s=expires_at_s, cost_s=cost_s)


def admit(waiting: Waiting) -> Verdict:
    return Admit(id=waiting.work.id, reason=Reason(Rule.CAPACITY))


def refuse(waiting: Waiting) -> Verdict:
    return Reject(id=waiting.work.id, reason=Reason(Rule.EXPIRED), retry_after_s=1.0)


def served(queue: Queue, count: int) -> list[str]:
    verdicts = [queue.pop_ready(admit) for _ in range(count)]
    return [verdict.id for verdict in verdicts if verdict]


@pytest.fixture(params=DISCIPLINES)
def queue(request: pytest.FixtureRequest) -> Queue:
    empty: Queue = request.param()
    return empty


def test_all_come_out_once(queue: Queue) -> None:
    """Whatever the order, each one pushed is popped once, and then the queue is empty."""
    for i in range(20):
        queue.push(entry(str(i), tenant=str(i % 3)))
    assert len(queue) == 20
    assert sorted(served(queue, 25), key=int) == [str(i) for i in range(20)]
    assert len(queue) == 0
    assert queue.cost_s == 0.0


def test_nobody_leaves_without_a_verdict(queue: Queue) -> None:
    """A candidate that the caller cannot place stays where it is."""
    queue.push(entry("a"))
    assert queue.pop_ready(lambda _: None) is None
    assert "a" in queue
    assert served(queue, 1) == ["a"]


def test_withdrawing(queue: Queue) -> None:
    """One that no longer waits is gone at once, with its cost and its expiry; a second time there is nothing to do."""
    queue.push(entry("a", cost_s=2.0))
    queue.push(entry("b", cost_s=3.0))
    assert queue.withdraw("a")
    assert not queue.withdraw("a")
    assert (len(queue), queue.cost_s) == (1, 3.0)
    assert [waiting.work.id for waiting in queue.expire(100.0)] == ["b"]


def test_expiring(queue: Queue) -> None:
    """Those whose time is up leave in the order of their times, and the next time is known."""
    for name, expires_at_s in [("late", 30.0), ("soon", 10.0), ("next", 20.0)]:
        queue.push(entry(name, tenant=name, expires_at_s=expires_at_s))
    assert queue.next_expiry_s() == 10.0
    assert queue.expire(9.9) == []
    assert [waiting.work.id for waiting in queue.expire(20.0)] == ["soon", "next"]
    assert queue.next_expiry_s() == 30.0


def test_clearing(queue: Queue) -> None:
    """Clearing gives everyone back and leaves nothing behind."""
    for i in range(3):
        queue.push(entry(str(i), tenant=str(i)))
    assert {waiting.work.id for waiting in queue.clear()} == {"0", "1", "2"}
    assert (len(queue), queue.cost_s, queue.next_expiry_s()) == (0, 0.0, None)


def test_an_id_waits_once(queue: Queue) -> None:
    """Pushing the same id twice is a bug of the caller's."""
    queue.push(entry("a"))
    with pytest.raises(AssertionError):
        queue.push(entry("a"))


def test_nothing_is_ahead_in_an_empty_queue(queue: Queue) -> None:
    """The first to wait has nobody and nothing before it."""
    assert queue.ahead(patient(), 5.0) == (0, 0.0)


def test_first_come_first_served_within_a_tenant() -> None:
    """One tenant's requests leave in the order they came."""
    queue = RoundRobin()
    for name in "abcd":
        queue.push(entry(name))
    assert served(queue, 4) == ["a", "b", "c", "d"]


def test_a_flood_delays_a_quiet_tenant_by_one_turn() -> None:
    """Behind a thousand requests of one tenant, another's only request is served after one more of them."""
    queue = RoundRobin()
    for i in range(1000):
        queue.push(entry(f"flood{i}", "flood"))
    served(queue, 5)
    queue.push(entry("quiet", "quiet"))
    assert served(queue, 2) == ["flood5", "quiet"]


def test_turns_follow_weights() -> None:
    """Three busy tenants of weights 1, 2 and 4 are served in these shares, in every round."""
    queue = RoundRobin()
    for i in range(200):
        for tenant, weight in (("one", 1), ("two", 2), ("four", 4)):
            queue.push(entry(f"{tenant}-{i}", tenant, weight=weight))
    for _ in range(20):
        round_ = Counter(name.split("-")[0] for name in served(queue, 7))
        assert round_ == {"one": 1, "two": 2, "four": 4}


def test_the_one_whose_turn_it_is_is_not_passed_by() -> None:
    """While the first in turn cannot go, nobody goes: a large request does not starve behind small ones."""
    queue = RoundRobin()
    queue.push(entry("large", "a"))
    queue.push(entry("small", "b"))
    assert queue.pop_ready(lambda waiting: admit(waiting) if waiting.work.id == "small" else None) is None
    assert served(queue, 2) == ["large", "small"]


def test_a_refusal_spends_no_turn() -> None:
    """A tenant whose request was refused when its turn came still has that turn."""
    queue = RoundRobin()
    for name, tenant in [("a1", "a"), ("a2", "a"), ("b1", "b")]:
        queue.push(entry(name, tenant))
    queue.pop_ready(refuse)
    assert served(queue, 2) == ["a2", "b1"]


def test_ahead_is_bounded_by_the_turns_of_the_others() -> None:
    """A new tenant has before it what comes in its own turns; one of twice the weight has half as much."""
    queue = RoundRobin()
    for i in range(10):
        queue.push(entry(str(i), "flood", cost_s=1.0))
    assert queue.ahead(patient(tenant="flood"), 1.0) == (10, 10.0)
    assert queue.ahead(patient(tenant="quiet"), 1.0) == (10, 2.0)
    assert queue.ahead(patient(tenant="quiet", weight=2), 1.0) == (10, 1.5)


def test_a_weight_may_change() -> None:
    """The latest request's weight holds for its tenant, within 1 and 1000."""
    queue = RoundRobin()
    queue.push(entry("a1", "a", weight=10**9))
    queue.push(entry("a2", "a", weight=-5))
    queue.push(entry("a3", "a"))
    queue.push(entry("b1", "b"))
    assert served(queue, 4) == ["a1", "b1", "a2", "a3"]


def test_the_memory_is_bounded_by_those_who_wait() -> None:
    """Twenty thousand requests that came and left leave next to nothing in a queue where one waits for long."""
    queue = RoundRobin()
    queue.push(entry("stays", expires_at_s=1e9))
    for i in range(20_000):
        queue.push(entry(str(i), tenant=str(i), expires_at_s=1e8))
        queue.withdraw(str(i))
    assert len(queue._expiry._heap) <= 2 * len(queue) + 65
    assert len(queue._ring) == 1


def overflow_of(queue: RoundRobin, tenant: str, *, cost_s: float = 1.0, weight: int = 1) -> str | None:
    waiting = queue.overflow(patient("new", tenant=tenant, weight=weight), cost_s)
    return None if waiting is None else waiting.work.id


def test_a_full_queue_makes_room_for_a_quiet_tenant() -> None:
    """The newest request of the tenant with most queued goes, whoever else waits, and nothing goes by being asked."""
    queue = RoundRobin()
    for work_id in ("l1", "l2", "l3"):
        queue.push(entry(work_id, "loud"))
    queue.push(entry("m1", "middle"))
    assert overflow_of(queue, "quiet") == "l3"
    assert len(queue) == 4


def test_a_full_queue_makes_no_room_for_those_who_fill_it() -> None:
    """Nobody is refused for a newcomer whose own tenant would then have more queued, by cost and weight."""
    queue = RoundRobin()
    for work_id in ("l1", "l2", "l3"):
        queue.push(entry(work_id, "loud"))
    assert overflow_of(queue, "loud") is None
    assert overflow_of(queue, "quiet", cost_s=2.5) is None
    assert overflow_of(queue, "quiet", cost_s=2.5, weight=2) == "l3"
    assert overflow_of(RoundRobin(), "quiet") is None
