"""A later try takes the place of an earlier one and keeps its age; tenants never meet."""

from typing import Any

import pytest

from tests.unit.admission.builders import outcome, patient, pool, words
from tidegate.admission.attempt import Attempt
from tidegate.admission.contract import Contract
from tidegate.admission.controller import Controller
from tidegate.admission.decision import Enqueue, Reject
from tidegate.admission.outcome import Ending
from tidegate.admission.queues.orders import Order
from tidegate.admission.retries import REMEMBERED_S, Retries


def named(tenant: str = "acme", key: str = "k") -> Attempt:
    """A try whose client has named its request."""
    return Attempt(same=(tenant, key))


def counted(number: int, body: str = "body") -> Attempt:
    """A try that its client has numbered."""
    return Attempt(same=("acme", "10.0.0.7", body), number=number, client=("acme", "10.0.0.7"))


def busy(**facts: Any) -> Controller:
    """A pool in order of arrival whose only slot is taken."""
    controller = pool(**({"slots": 1, "order": Order.FIFO, "fair": False} | facts))
    controller.submit(patient("running"), 0.0)
    return controller


def served(controller: Controller, now_s: float, running: str = "running") -> list[str]:
    """End what runs; who goes next."""
    controller.release(running, now_s)
    return words(controller.take_verdicts())


@pytest.mark.parametrize(
    ("first", "second"),
    [(named(), named()), (counted(0), counted(1)), (counted(1), counted(2)), (counted(0), counted(7))],
)
def test_a_later_try_takes_the_place_of_the_one_that_waits(first: Attempt, second: Attempt) -> None:
    """One live entry, with the age of the older; the older stream is told that another try has taken its place."""
    controller = busy()
    controller.submit(patient("a", attempt=first), 1.0)
    controller.submit(patient("b"), 2.0)
    assert isinstance(controller.submit(patient("a2", attempt=second), 3.0), Enqueue)
    assert words(controller.take_verdicts()) == ["a reject superseded"]
    assert controller.snapshot(3.0).queue_len == 2
    assert served(controller, 4.0) == ["a2 admit"]


def test_three_tries_at_once_leave_one() -> None:
    """However many tries come, one waits, as old as the first; the others are answered 409 and not asked to retry."""
    controller = busy()
    controller.submit(patient("a", attempt=named()), 1.0)
    controller.submit(patient("b"), 2.0)
    for number in range(3):
        controller.submit(patient(f"a{number}", attempt=named()), 3.0)
    refused = controller.take_verdicts()
    assert words(refused) == ["a reject superseded", "a0 reject superseded", "a1 reject superseded"]
    assert all(isinstance(v, Reject) and v.status == 409 and v.retry_after_s is None for v in refused)
    assert served(controller, 4.0) == ["a2 admit"]


def test_another_tenant_with_the_same_key_is_another_request() -> None:
    """Keys belong to a tenant."""
    controller = busy()
    controller.submit(patient("a", attempt=named("acme")), 1.0)
    controller.submit(patient("b", attempt=named("globex")), 2.0)
    assert controller.take_verdicts() == []
    assert controller.snapshot(3.0).queue_len == 2


@pytest.mark.parametrize(
    ("first", "second"), [(counted(0), counted(0)), (counted(1), counted(1)), (counted(2), counted(1))]
)
def test_requests_that_merely_look_alike_are_two(first: Attempt, second: Attempt) -> None:
    """The same body without a higher count is somebody else's request: both wait."""
    controller = busy()
    controller.submit(patient("a", attempt=first), 1.0)
    controller.submit(patient("b", attempt=second), 2.0)
    assert controller.take_verdicts() == []
    assert controller.snapshot(3.0).queue_len == 2


def test_a_try_of_a_running_request_is_a_request_like_any_other() -> None:
    """What runs is not touched, and its next try waits behind those that came before."""
    controller = pool(slots=1, order=Order.FIFO, fair=False)
    controller.submit(patient("a", attempt=named()), 0.0)
    controller.submit(patient("b"), 1.0)
    controller.submit(patient("a2", attempt=named()), 2.0)
    assert controller.take_verdicts() == []
    assert served(controller, 3.0, running="a") == ["b admit"]


@pytest.mark.parametrize(("gone_s", "next_in_turn"), [(0.5, "a2"), (REMEMBERED_S + 0.5, "b")])
def test_a_client_that_left_and_comes_back_has_waited_as_long_as_it_had(gone_s: float, next_in_turn: str) -> None:
    """Coming back soon it stands before those that came later than it by its waiting; after ten seconds, behind."""
    controller = busy()
    controller.submit(patient("a", attempt=counted(0)), 1.0)
    controller.release("a", 21.0)  # it waited for 20 s
    controller.submit(patient("b"), 21.0)
    controller.submit(patient("a2", attempt=counted(1)), 21.0 + gone_s)
    assert served(controller, 40.0) == [f"{next_in_turn} admit"]


def test_time_away_is_no_time_waited() -> None:
    """Who comes and goes without waiting gains nothing over who stays."""
    controller = busy()
    for number in range(9):
        controller.submit(patient(f"a{number}", attempt=named()), 9.0 * number)
        controller.release(f"a{number}", 9.0 * number)
    controller.submit(patient("b"), 80.0)
    controller.submit(patient("a", attempt=named()), 81.0)
    assert served(controller, 82.0) == ["b admit"]


def test_a_full_queue_has_room_for_the_next_try_of_one_in_it() -> None:
    """It takes the place that is its own already."""
    controller = busy(queue_len=2)
    controller.submit(patient("a", attempt=named()), 1.0)
    controller.submit(patient("b"), 1.0)
    assert isinstance(controller.submit(patient("a2", attempt=named()), 2.0), Enqueue)
    assert words([controller.submit(patient("c"), 2.0)]) == ["c reject queue_full"]


def test_the_next_try_takes_over_the_place_in_its_tenants_contract() -> None:
    """One request at a time: a second try of the one that waits is the same request."""
    controller = busy()
    facts: dict[str, Any] = {"tenant": "acme", "contract": Contract(requests=1), "attempt": named()}
    controller.submit(patient("a", **facts), 1.0)
    assert isinstance(controller.submit(patient("a2", **facts), 2.0), Enqueue)
    controller.take_verdicts()
    controller.release("a", 2.0)
    assert served(controller, 3.0) == ["a2 admit"]
    controller.release("a2", 4.0)
    assert words([controller.submit(patient("c", **facts), 5.0)]) == ["c admit"]


@pytest.mark.parametrize("how", ["admitted", "expired"])
def test_one_that_had_its_verdict_leaves_no_age_behind(how: str) -> None:
    """Only who left while waiting is remembered."""
    controller = busy()
    controller.submit(patient("a", attempt=named(), hold_s_max=5.0), 1.0)
    if how == "admitted":
        assert served(controller, 2.0) == ["a admit"]
        controller.release("a", 7.0)
        controller.submit(patient("running"), 7.0)
    else:
        controller.tick(7.0)
        assert words(controller.take_verdicts()) == ["a reject expired"]
    controller.submit(patient("b"), 8.0)
    controller.submit(patient("a2", attempt=named()), 9.0)
    assert served(controller, 10.0) == ["b admit"]


@pytest.mark.parametrize(
    "how", ["refused at once", "refused unread", "expired", "engine failed", "client left it running"]
)
def test_a_retry_that_something_explains_leaves_those_that_wait_alone(how: str) -> None:
    """Two clients behind one address ask the same: the retry of one does not throw out the first try of the other."""
    controller = busy(queue_len=2, order=Order.FIFO)
    first = counted(0)
    if how == "refused at once":
        controller.submit(patient("q1"), 0.5)
        controller.submit(patient("q2"), 0.5)
        assert words([controller.submit(patient("a", attempt=first), 0.5)]) == ["a reject queue_full"]
        controller.release("q1", 0.6)
        controller.release("q2", 0.6)
    elif how == "refused unread":
        controller.refused_unread(Attempt(same=None, number=0, client=("acme", "10.0.0.7")), 0.5)
    elif how == "expired":
        controller.submit(patient("a", attempt=first, hold_s_max=0.5), 0.0)
        controller.tick(1.0)
        assert words(controller.take_verdicts()) == ["a reject expired"]
    else:
        controller.release("running", 0.1)
        controller.submit(patient("a", attempt=first), 0.1)
        controller.release("a", 0.5)
        controller.submit(patient("running"), 0.5)
        ending = Ending.ENGINE_FAILED if how == "engine failed" else Ending.CLIENT_CANCELLED
        controller.settle(outcome("a", ending=ending, completion_tokens=None), 0.6)
    controller.submit(patient("b", attempt=counted(0)), 1.0)
    assert isinstance(controller.submit(patient("a2", attempt=counted(1)), 2.0), Enqueue)
    assert controller.take_verdicts() == []
    assert isinstance(controller.submit(patient("b2", attempt=counted(1)), 3.0), Enqueue)
    assert words(controller.take_verdicts()) == ["b reject superseded"]


def test_an_end_explains_one_retry_for_a_minute() -> None:
    """The second retry is no more explained by it, nor is one that comes much later."""
    retries = Retries()
    retries.waits(patient("b", attempt=counted(0)), 0.0)
    retries.ended(counted(0), 0.0)
    assert retries.before(counted(1), 1.0).work_id == ""
    assert retries.before(counted(1), 1.0).work_id == "b"
    retries.ended(counted(0), 1.0)
    assert retries.before(counted(1), 100.0).work_id == "b"


def test_memory_is_bounded() -> None:
    """Of those that left, the latest few thousand are remembered, and none for longer than it counts."""
    retries = Retries()
    for number in range(10_000):
        work = patient(f"w{number}", attempt=named(key=str(number)))
        retries.waits(work, 0.0)
        retries.left(work.id, 0.0)
    assert len(retries) == 4096
    late = patient("late", attempt=named(key="late"))
    retries.waits(late, 100.0)
    retries.left("late", 100.0)
    assert len(retries) == 1
    for number in range(10_000):
        retries.ended(Attempt(same=None, number=0, client=number), 100.0)
    assert len(retries) == 4097
