"""The controller of one pool: books, queue, verdicts."""

import pytest

from tidegate.admission.controller import Controller
from tidegate.admission.decision import Admit, Enqueue, Reject, Rule
from tidegate.admission.limits import Limits, Mode

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


def test_a_flood_in_the_queue_makes_room_for_a_quiet_tenant() -> None:
    """The newest of the flood is refused in its favour, with its waiting time, and the queue stays within its bound."""
    controller = pool(queue_len=2)
    for work_id in ("a", "b", "c"):
        controller.submit(patient(work_id, tenant="loud"), 0.0)
    assert controller.preview(patient("q", tenant="quiet"), 3.0) is None
    assert words([controller.submit(patient("q", tenant="quiet"), 3.0)]) == ["q enqueue slots"]
    (evicted,) = controller.take_verdicts()
    assert isinstance(evicted, Reject)
    assert (evicted.id, evicted.reason.rule, evicted.waited_s) == ("c", Rule.QUEUE_FULL, 3.0)
    assert controller.snapshot(3.0).queue_len == 2


def test_no_endpoint_and_one_that_appears_later() -> None:
    """Without any engine two may wait, the third is 503; when one appears, those whose time is not up go in order."""
    controller = pool(engines=0, queue_len=2)
    assert words([controller.submit(patient("short", hold_s_max=2.0), 0.0)]) == ["short enqueue no_engine"]
    assert words([controller.submit(patient("long", hold_s_max=10.0), 0.0)]) == ["long enqueue no_engine"]
    third = controller.submit(patient("third", hold_s_max=10.0), 0.0)
    assert isinstance(third, Reject)
    assert (third.reason.rule, third.status) == (Rule.NO_ENGINE, 503)

    controller.tick(2.0)
    (expired,) = controller.take_verdicts()
    assert isinstance(expired, Reject)
    assert (expired.id, expired.status) == ("short", 503)
    assert words([controller.submit(patient("later", hold_s_max=10.0), 2.5)]) == ["later enqueue no_engine"]

    controller.set_engines_alive(1, 3.0)
    assert words(controller.take_verdicts()) == ["long admit"]
    controller.release("long", 4.0)
    assert words(controller.take_verdicts()) == ["later admit"]


def test_engines_lost_while_some_wait() -> None:
    """Those who wait keep waiting when the engines go, and are told `no_engine` if none returns in time."""
    controller = pool()
    controller.submit(patient("a"), 0.0)
    controller.submit(patient("b", hold_s_max=5.0), 0.0)
    controller.set_engines_alive(0, 1.0)
    controller.release("a", 2.0)
    assert controller.take_verdicts() == []
    controller.tick(5.0)
    assert words(controller.take_verdicts()) == ["b reject no_engine"]


def test_waiting_ends_at_the_time_that_was_told() -> None:
    """A queued request is refused at its expiry, not before; `next_wake_s` names the moment."""
    controller = pool()
    controller.submit(patient("a"), 0.0)
    decision = controller.submit(patient("b", hold_s_max=0.5), 0.0)
    assert isinstance(decision, Enqueue)
    assert decision.expires_at_s == controller.next_wake_s() == 0.5
    controller.tick(0.49)
    assert controller.take_verdicts() == []
    controller.tick(0.5)
    (verdict,) = controller.take_verdicts()
    assert isinstance(verdict, Reject)
    assert (verdict.reason.rule, verdict.waited_s) == (Rule.EXPIRED, 0.5)


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


def test_draining_refuses_all_but_what_runs() -> None:
    """On shutdown the queue is refused at once, newcomers too, and what runs is let run."""
    controller = pool()
    for name in "abc":
        controller.submit(patient(name), 0.0)
    controller.drain(1.0)
    assert words(controller.take_verdicts()) == ["b reject shutting_down", "c reject shutting_down"]
    assert words([controller.submit(patient("d"), 1.0)]) == ["d reject shutting_down"]
    assert controller.snapshot(1.0).in_flight == 1
    assert controller.release("a", 2.0)


def test_a_new_pool_ramps() -> None:
    """A new pool holds a quarter of its slots, all of them after ten seconds, and grants as it grows."""
    limits = Limits(slots=8, mode=Mode.BACKPRESSURE_FIRST)
    controller = Controller(limits, engines=1, now_s=0.0)
    decisions = words([controller.submit(patient(str(i)), 0.0) for i in range(8)])
    assert decisions == ["0 admit", "1 admit", "2 enqueue slots"] + [f"{i} enqueue slots" for i in range(3, 8)]
    granted_at_s: list[float] = []
    while (wake_s := controller.next_wake_s()) is not None:
        controller.tick(wake_s)
        granted_at_s += [wake_s] * len(controller.take_verdicts())
    assert len(granted_at_s) == 6
    assert granted_at_s == sorted(granted_at_s)
    assert granted_at_s[-1] == pytest.approx(10.0)


def test_engines_that_return_ramp_again() -> None:
    """After an outage of every engine the pool starts again at a quarter."""
    controller = Controller(Limits(slots=8), engines=1, now_s=0.0)
    controller.set_engines_alive(0, 20.0)
    assert controller.snapshot(20.0).sequences_max == 0
    controller.set_engines_alive(1, 30.0)
    assert controller.snapshot(30.0).sequences_max == 2
    assert controller.snapshot(40.0).sequences_max == 8


def test_a_large_request_goes_when_it_is_alone() -> None:
    """A request larger than the pool waits until nothing runs, is not passed by, and then runs."""
    controller = pool(slots=4, kv_tokens=1000)
    controller.submit(patient("small"), 0.0)
    decisions = [
        controller.submit(patient(name, prompt_tokens=size), 0.0) for name, size in [("large", 5000), ("next", 1)]
    ]
    assert words(decisions) == ["large enqueue kv_tokens", "next enqueue queue_order"]
    controller.release("small", 1.0)
    assert words(controller.take_verdicts()) == ["large admit"]
    assert controller.snapshot(1.0).kv_tokens == 1000
    controller.release("large", 2.0)
    assert words(controller.take_verdicts()) == ["next admit"]


def test_a_low_one_is_not_starved_by_endless_traffic() -> None:
    """While another tenant keeps sending at twice the capacity, one request of weight 1 is served within one round."""
    controller = pool(queue_len=40)
    controller.submit(patient("high-0", tenant="high", weight=4), 0.0)
    running, sent, admitted = "high-0", 1, 0
    for _ in range(10):
        controller.submit(patient(f"high-{sent}", tenant="high", weight=4), 0.0)
        sent += 1
    controller.submit(patient("low", tenant="low"), 0.0)
    while running != "low":
        admitted += 1
        assert admitted <= 5
        for _ in range(2):
            controller.submit(patient(f"high-{sent}", tenant="high", weight=4), float(admitted))
            sent += 1
        controller.release(running, float(admitted))
        (verdict,) = controller.take_verdicts()
        running = verdict.id


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


def test_books_of_an_earlier_process_hold_capacity_until_settled() -> None:
    """After a restart what still runs takes up its slots until the log reports it or its time is over."""
    before = pool(slots=2)
    before.submit(patient("a"), 0.0)
    before.submit(patient("b"), 0.0)
    after = pool(slots=2, now_s=1000.0)
    assert after.restore_books(before.dump_books(1.0), 1000.0) == 2
    assert after.restore_books(before.dump_books(1.0), 1000.0) == 0
    assert (after.snapshot(1000.0).orphans, after.snapshot(1000.0).sequences) == (2, 2)

    assert words([after.submit(patient("c"), 1000.0)]) == ["c enqueue slots"]
    assert after.settle(outcome("a"), 1001.0)
    assert words(after.take_verdicts()) == ["c admit"]
    assert words([after.submit(patient("d"), 1001.0)]) == ["d enqueue slots"]
    wake_s = after.next_wake_s()
    for _ in range(100):
        if wake_s is None:
            break
        after.tick(wake_s)
        wake_s = after.next_wake_s()
    assert words(after.take_verdicts()) == ["d admit"]
    assert after.snapshot(2000.0).orphans == 0


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


def test_new_limits_take_effect_at_once() -> None:
    """More room serves who waits; less room refuses nobody that runs."""
    controller = pool()
    for name in "abc":
        controller.submit(patient(name), 0.0)
    controller.reconfigure(Limits(slots=3, mode=Mode.BACKPRESSURE_FIRST), 1, 1.0)
    assert words(controller.take_verdicts()) == ["b admit", "c admit"]
    controller.reconfigure(Limits(slots=1, mode=Mode.BACKPRESSURE_FIRST), 1, 2.0)
    assert controller.snapshot(2.0).sequences_free == -2


def test_engines_that_are_down_stay_down_over_a_reconfiguration() -> None:
    """A change of the number of engines moves the number alive by the difference."""
    controller = pool(engines=4)
    controller.set_engines_alive(3, 0.0)
    controller.reconfigure(Limits(), 6, 0.0)
    assert controller.snapshot(0.0).engines == 5
    controller.reconfigure(Limits(), 0, 0.0)
    assert controller.snapshot(0.0).engines == 0


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


def test_time_never_goes_back() -> None:
    """A call with an earlier time counts as one now."""
    controller = pool()
    controller.submit(patient("a"), 10.0)
    controller.submit(patient("b", hold_s_max=5.0), 3.0)
    assert controller.next_wake_s() == 11.0
    controller.tick(14.9)
    assert controller.take_verdicts() == []
