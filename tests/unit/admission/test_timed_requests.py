"""Requests without tokens in the core: their price, their gate, their place beside requests that have tokens."""

import pytest

from tidegate.admission.controller import Controller
from tidegate.admission.decision import Admit, Enqueue, Reason, Reject, Rule
from tidegate.admission.gates import GATES
from tidegate.admission.limits import GateName, Limits, Mode
from tidegate.admission.load import TimedLoad
from tidegate.admission.outcome import Ending, Outcome
from tidegate.admission.service_book import TRUST_MIN, ServiceBook
from tidegate.admission.work import Work

from .builders import cost, engine, load, outcome, patient, pool, words

START = 8


def timed(work_id: str, service_s: float = 0.1, /, **facts: object) -> Work:
    return patient(work_id, prompt_tokens=0, completion_tokens_max=None, stream=False, service_s=service_s, **facts)


def fill(controller: Controller, count: int, now_s: float = 0.0) -> None:
    for number in range(count):
        assert isinstance(controller.submit(timed(f"r{number}"), now_s), Admit)


def complete(controller: Controller, work_id: str, now_s: float, *, first: str = "release") -> None:
    if first == "release":
        controller.release(work_id, now_s)
    controller.settle(Outcome(id=work_id, ending=Ending.COMPLETE, status=200, e2e_s=0.1), now_s)
    if first == "settle":
        controller.release(work_id, now_s)


def test_the_gate() -> None:
    """As many as the engine works on at once; a request that has tokens is none of its business."""
    gate, work = GATES[GateName.SERVICE], Work(id="w")
    for running, refused in ((3, False), (4, True), (9, True)):
        place = engine(timed=TimedLoad(running=running, most=4))
        shut = gate.refusal(work, load(place, cost=cost(service_s=0.1)), place, Limits())
        assert shut == (Reason(Rule.SERVICE, running + 1, 4, "requests") if refused else None)
        assert gate.refusal(work, load(place), place, Limits()) is None
    assert not gate.always


def test_a_price_is_its_time_over_what_the_engine_does_at_once() -> None:
    """It has no tokens to be charged, holds next to nothing of the KV cache, and its whole time is its answer."""
    price = pool().price(timed("w", 0.4))
    assert (price.answer_s, price.service_s, price.bottleneck_s) == (0.4, 0.4, 0.4 / START)
    assert (price.tokens, price.sequences, price.kv_tokens) == (0.0, 1, 1)


@pytest.mark.parametrize("service_s", [-1.0, 0.0, 1e9])
def test_a_nonsensical_time_is_bounded(service_s: float) -> None:
    """Nothing divides by nothing, nothing overflows."""
    assert 0.0 < pool().price(timed("w", service_s)).bottleneck_s <= 3600.0


def test_they_wait_for_room_and_get_it() -> None:
    """The ninth waits, with the gate's figures, and goes when one has ended, though slots are free all the time."""
    controller = pool(slots=256)
    fill(controller, START)
    waits = controller.submit(timed("w"), 0.0)
    assert isinstance(waits, Enqueue)
    assert waits.reason == Reason(Rule.SERVICE, START + 1, START, "requests")
    controller.release("r0", 1.0)
    assert words(list(controller.take_verdicts())) == ["w admit"]
    assert controller.snapshot(1.0).timed == START


def test_a_request_that_cannot_be_refused_goes_over_the_limit() -> None:
    """Books stay true: the limit counts it."""
    controller = pool(slots=256)
    fill(controller, START)
    over = controller.submit(timed("w", refusable=False), 0.0)
    assert isinstance(over, Admit)
    assert over.reason.rule is Rule.NOT_REFUSABLE
    assert controller.snapshot(0.0).timed == START + 1


def test_predicted_times_count_against_budget_and_timeout() -> None:
    """Its first byte is its last: a service time beyond the client's timeout cannot wait, a short one can."""
    controller = pool(slots=256, mode=Mode.HYBRID)
    fill(controller, START)
    late = controller.submit(timed("late", 3.0, ttft_budget_s=2.0, client_timeout_s=10.0), 0.0)
    assert isinstance(late, Reject)
    assert late.reason.rule is Rule.WAIT_TOO_LONG
    soon = controller.submit(timed("soon", 0.2, ttft_budget_s=2.0, client_timeout_s=10.0), 0.0)
    assert isinstance(soon, Enqueue)
    assert soon.expires_at_s == pytest.approx(1.8, abs=0.3)


def test_stated_slots_bound_them_too() -> None:
    """An operator who knows better than what was learned says so."""
    controller = pool(slots=2)
    fill(controller, 2)
    waits = controller.submit(timed("w"), 0.0)
    assert isinstance(waits, Enqueue)
    assert waits.reason.rule is Rule.SLOTS


def test_several_engines_hold_several_times_as_many() -> None:
    """One book for three engines that Envoy balances, or a book each: the same number in all."""
    together, apart = pool(slots=256, engines=3), pool(slots=256, names=("a:1", "b:1", "c:1"))
    for controller in (together, apart):
        fill(controller, 3 * START)
        assert isinstance(controller.submit(timed("w"), 0.0), Enqueue)
    for name in ("a:1", "b:1", "c:1"):
        assert sum(controller_engine(apart, f"r{number}") == name for number in range(3 * START)) == START


def controller_engine(controller: Controller, work_id: str) -> str:
    flight = controller._running.running(work_id)
    assert flight is not None
    return flight.book.name


@pytest.mark.parametrize("first", ["release", "settle"])
def test_completed_answers_move_the_limit(first: str) -> None:
    """The end of the stream and the log entry may come in either order: each request counts once."""
    controller = pool(slots=256)
    fill(controller, START)
    for number in range(47):
        complete(controller, f"r{number}", number / 10.0, first=first)
        controller.submit(timed(f"r{number + START}"), number / 10.0)
    assert controller.snapshot(5.0).timed_max == START
    complete(controller, "r47", 5.0, first=first)
    assert controller.snapshot(5.0).timed_max == 6  # one level down, to compare


@pytest.mark.parametrize(
    ("ending", "counts"),
    [
        (Ending.CLIENT_CANCELLED, True),
        (Ending.ENGINE_REFUSED, True),
        (Ending.ENGINE_FAILED, False),
        (Ending.BAD_REQUEST, False),
    ],
)
@pytest.mark.parametrize("first", ["release", "settle"])
def test_endings_without_an_answer(ending: Ending, counts: bool, first: str) -> None:
    """Clients that leave and an engine that refuses, eight in a row, are too much for it; faults are the health's."""
    controller = pool(slots=256)
    fill(controller, START)
    for number in range(START):
        report = Outcome(id=f"r{number}", ending=ending, status=200)
        if first == "release":
            controller.release(report.id, 1.0)
        controller.settle(report, 1.0)
        if first == "settle":
            controller.release(report.id, 1.0)
    expected_slots = 4 if counts else START
    assert controller.price(timed("w", 0.8)).bottleneck_s == pytest.approx(0.8 / expected_slots)


def test_trust_says_what_a_time_will_be_worth() -> None:
    """Alone: all. Beside others, while nobody knows how many the engine works on at once: little."""
    controller = pool(slots=256)
    trusts = []
    for number in range(5):
        admit = controller.submit(timed(f"r{number}"), 0.0)
        assert isinstance(admit, Admit)
        trusts.append(admit.trust)
    assert trusts == [1.0, pytest.approx(1 / 4), pytest.approx(1 / 9), pytest.approx(1 / 16), TRUST_MIN]


def test_trust_once_the_knee_is_known() -> None:
    """Up to the level below the knee nobody waits in the engine; above, a time may be anybody's."""
    book = ServiceBook(width=1, now_s=0.0)
    book.restore({"knee": {"at": 3.0, "quiet": 3.0, **dict.fromkeys(("endings", "seconds", "work_s"), [0.0] * 20)}})
    trusts = []
    for number in range(5):
        trusts.append(book.load(1.0).trust)
        book.admit(f"r{number}", 0.1, 0.0)
    assert trusts == [1.0, 1.0, 1.0, TRUST_MIN, TRUST_MIN]


def test_requests_with_tokens_beside_are_reckoned_as_if_alone() -> None:
    """Ones without tokens are no sequences that decode: neither first tokens nor what lengths are taken for move."""
    alone, mixed = pool(slots=256), pool(slots=256)
    fill(mixed, 6)
    for controller in (alone, mixed):
        controller.submit(patient("t", prompt_tokens=500, completion_tokens_max=200), 0.0)
        for tick in range(1, 60):
            controller.tick(tick / 10.0)
        controller.release("t", 6.0)
        controller.settle(outcome("t", prompt_tokens=500, e2e_s=5.5), 6.0)
    for number in range(6):
        complete(mixed, f"r{number}", 6.0)
    work = patient("next", prompt_tokens=800, completion_tokens_max=300)
    assert mixed.price(work) == alone.price(work)
    before, after = alone.dump_pace(), mixed.dump_pace()
    assert after["calibration"] == before["calibration"]
    assert after["tau_s"] == before["tau_s"]


def test_what_was_learned_of_an_engine_survives() -> None:
    """The knee is part of what a state file keeps; what runs is booked anew, at its size."""
    controller, other = pool(slots=256), pool(slots=256)
    fill(controller, START)
    for number in range(48):
        complete(controller, f"r{number}", number / 10.0)
        controller.submit(timed(f"r{number + START}"), number / 10.0)
    other.restore_pace(controller.dump_pace())
    assert other.snapshot(5.0).timed_max == controller.snapshot(5.0).timed_max == 6
    running = controller.snapshot(5.0).in_flight
    assert other.restore_books(controller.dump_books(5.0), 5.0) == running > 1
    other.settle(Outcome(id="r50", ending=Ending.COMPLETE), 5.0)
    assert other.snapshot(5.0).orphans == running - 1


def test_the_books_may_be_exchanged_under_them() -> None:
    """Where the engines come to be chosen here, what runs is taken in, ends as usual, and nothing is left behind."""
    controller = pool(slots=256, engines=2)
    fill(controller, 5)
    controller.reconfigure(Limits(slots=256), 2, 1.0, names=("a:1", "b:1"))
    for number in range(5):
        complete(controller, f"r{number}", 2.0)
    gauges = controller.snapshot(2.0)
    assert (gauges.in_flight, gauges.sequences, gauges.timed) == (0, 0, 0)
    fill(controller, 4, 3.0)
    assert controller.snapshot(3.0).timed == 4
