"""The controller of one pool: books, queue, verdicts, time."""

import pytest

from tidegate.admission.controller import Controller
from tidegate.admission.decision import Admit, Enqueue, Reject, Rule
from tidegate.admission.limits import Limits

from .builders import outcome, patient, pool, words


def test_a_slot_given_back_goes_to_the_next_in_line() -> None:
    """A release admits who waits within the same call, with the time it waited."""
    controller = pool()
    assert isinstance(controller.submit(patient("a"), 0.0), Admit)
    assert isinstance(controller.submit(patient("b"), 1.0), Enqueue)
    assert controller.release("a", 3.0)
    (verdict,) = controller.take_verdicts()
    assert isinstance(verdict, Admit)
    assert (verdict.id, verdict.waited_s, verdict.reason.rule) == ("b", 2.0, Rule.CAPACITY)
    assert controller.take_verdicts() == []


def test_a_client_that_leaves_gives_its_slot_back() -> None:
    """At limit 1, whether the first client leaves while running or while queued, the next one is admitted."""
    controller = pool()
    controller.submit(patient("a"), 0.0)
    controller.submit(patient("left"), 0.1)
    assert controller.release("left", 0.2)
    assert controller.release("a", 0.3)
    assert controller.take_verdicts() == []
    assert isinstance(controller.submit(patient("b"), 0.35), Admit)
    assert controller.release("b", 0.4)
    assert (controller.snapshot(0.4).in_flight, controller.snapshot(0.4).sequences) == (0, 0)


def test_a_release_happens_once() -> None:
    """A second end of the same stream, or the end of an unknown one, changes nothing."""
    controller = pool()
    controller.submit(patient("a"), 0.0)
    assert controller.release("a", 1.0)
    assert not controller.release("a", 1.0)
    assert not controller.release("stranger", 1.0)
    assert controller.snapshot(1.0).sequences == 0


def test_a_verdict_nobody_took_dies_with_its_stream() -> None:
    """A client that leaves between being granted and being told gives its slot back, and nobody is told."""
    controller = pool()
    controller.submit(patient("a"), 0.0)
    controller.submit(patient("b"), 0.0)
    controller.release("a", 1.0)
    assert controller.release("b", 1.0)
    assert controller.take_verdicts() == []
    assert controller.snapshot(1.0).sequences == 0


def test_a_duplicate_id_is_a_bug() -> None:
    """Submitting an id that waits or runs is a bug of the caller's."""
    controller = pool()
    controller.submit(patient("a"), 0.0)
    controller.submit(patient("b"), 0.0)
    for work_id in ("a", "b"):
        with pytest.raises(AssertionError):
            controller.submit(patient(work_id), 0.0)


def test_a_refused_request_spends_nothing() -> None:
    """What is refused leaves books and queue as they were."""
    controller = pool(queue_len=0)
    controller.submit(patient("a"), 0.0)
    before = controller.snapshot(0.0)
    assert words([controller.submit(patient("b"), 0.0)]) == ["b reject queue_full"]
    assert controller.snapshot(0.0) == before


def test_a_late_release_does_not_serve_the_expired() -> None:
    """A slot that comes free after a request's time is up goes to the next whose time is not."""
    controller = pool()
    controller.submit(patient("a"), 0.0)
    controller.submit(patient("b", hold_s_max=0.5), 0.0)
    controller.submit(patient("c", hold_s_max=9.0), 0.0)
    controller.release("a", 1.0)
    assert words(controller.take_verdicts()) == ["b reject expired", "c admit"]


def test_nothing_wakes_while_nobody_waits() -> None:
    """A timer is needed only while somebody waits."""
    controller = Controller(Limits(), engines=1, now_s=0.0)
    assert controller.next_wake_s() is None
    controller.submit(patient("a"), 0.0)
    assert controller.next_wake_s() is None


def test_an_outcome_counts_once() -> None:
    """The same log entry twice teaches once; it may come before or after the stream's end, or from another replica."""
    controller = pool()
    controller.submit(patient("a"), 0.0)
    assert controller.settle(outcome("a"), 1.0)
    assert controller.snapshot(1.0).in_flight == 1
    learned_s = controller.snapshot(1.0).tau_s
    assert learned_s < 0.05
    assert controller.release("a", 1.0)
    assert not controller.settle(outcome("a"), 2.0)
    assert controller.snapshot(2.0).tau_s == learned_s
    assert controller.settle(outcome("theirs", replica="other"), 2.0)
    assert not controller.settle(outcome(""), 2.0)


def test_over_booking_is_told_apart() -> None:
    """What could not be refused is admitted over the limit, shown in the gauges, and others wait for it."""
    controller = pool()
    controller.submit(patient("a"), 0.0)
    assert isinstance(controller.submit(patient("b", refusable=False), 0.0), Admit)
    state = controller.snapshot(0.0)
    assert (state.sequences, state.over_sequences, state.sequences_free) == (2, 1, -1)
    controller.submit(patient("c"), 0.0)
    controller.release("a", 1.0)
    assert controller.take_verdicts() == []
    controller.release("b", 2.0)
    assert words(controller.take_verdicts()) == ["c admit"]


def test_a_preview_foretells_and_changes_nothing() -> None:
    """The preview names a refusal that is certain, and is silent where the request could be admitted or wait."""
    controller = pool(queue_len=1)
    assert controller.preview(patient("a"), 0.0) is None
    controller.submit(patient("a"), 0.0)
    assert controller.preview(patient("b"), 0.0) is None
    controller.submit(patient("b", hold_s_max=0.5), 0.0)
    before = controller.snapshot(0.0)
    foretold = controller.preview(patient("c"), 0.0)
    assert foretold == controller.submit(patient("c"), 0.0)
    assert controller.snapshot(0.0) == before
    assert controller.preview(patient("d"), 0.5) is None  # the one that waits has run out of time: there may be room
    assert isinstance(controller.submit(patient("d"), 0.5), Enqueue)


def test_waiting_ends_at_the_time_that_was_told() -> None:
    """A queued request is refused at its expiry, not before, if its caller ticks whenever it is told to."""
    controller = pool()
    controller.submit(patient("a"), 0.0)
    decision = controller.submit(patient("b", hold_s_max=0.5), 0.0)
    assert isinstance(decision, Enqueue)
    assert decision.expires_at_s == 0.5
    controller.tick(0.49)
    assert controller.take_verdicts() == []
    assert controller.next_wake_s() == 0.5
    controller.tick(0.5)
    (verdict,) = controller.take_verdicts()
    assert isinstance(verdict, Reject)
    assert (verdict.reason.rule, verdict.waited_s) == (Rule.EXPIRED, 0.5)


def test_somebody_looks_every_tenth_of_a_second_while_anyone_waits() -> None:
    """Prompts get done with time alone, so the next look is 5 to 100 ms away, until nobody waits."""
    controller = pool()
    controller.submit(patient("a"), 0.0)
    controller.submit(patient("b", hold_s_max=2.0), 0.0)
    now_s, looks = 0.0, 0
    while (wake_s := controller.next_wake_s()) is not None:
        assert 0.0 < wake_s - now_s <= 0.1 + 1e-9
        now_s, looks = wake_s, looks + 1
        controller.tick(now_s)
    assert now_s == 2.0
    assert 20 <= looks <= 30


def test_time_never_goes_back() -> None:
    """A call with an earlier time counts as one now."""
    controller = pool()
    controller.submit(patient("a"), 10.0)
    decision = controller.submit(patient("b", hold_s_max=5.0), 3.0)
    assert isinstance(decision, Enqueue)
    assert decision.expires_at_s == 15.0
    wake_s = controller.next_wake_s()
    assert wake_s is not None
    assert wake_s > 10.0
    controller.tick(14.9)
    assert controller.take_verdicts() == []
    controller.release("a", 2.0)
    (verdict,) = controller.take_verdicts()
    assert verdict.waited_s == pytest.approx(4.9)
