"""What changes under a controller: its start, its limits, its engines' number, its end and the process after it."""

import pytest

from tidegate.admission.controller import Controller
from tidegate.admission.decision import Reject, Rule
from tidegate.admission.limits import GateName, Limits, Mode
from tidegate.admission.queues.orders import Order

from .builders import outcome, patient, pool, words


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


def test_a_new_order_holds_for_those_who_wait() -> None:
    """Who waits keeps waiting when the order changes, and is served in the new one."""
    controller = pool(order=Order.FIFO)
    controller.submit(patient("a"), 0.0)
    for name, tokens in (("first", 3000), ("small", 10), ("last", 2000)):
        controller.submit(patient(name, prompt_tokens=tokens), 1.0)
    controller.reconfigure(Limits(slots=1, mode=Mode.BACKPRESSURE_FIRST, order=Order.SHORTEST), 1, 2.0)
    served = []
    for ended in ("a", "small", "last"):
        controller.release(ended, 3.0)
        served += words(controller.take_verdicts())
    assert served == ["small admit", "last admit", "first admit"]


def test_the_places_in_the_queue_outlast_other_changes() -> None:
    """Limits that say nothing about the order leave it as it is, expiry included."""
    controller = pool(order=Order.FIFO)
    controller.submit(patient("a"), 0.0)
    controller.submit(patient("first", prompt_tokens=3000, hold_s_max=9.0), 1.0)
    controller.submit(patient("second", hold_s_max=9.0), 2.0)
    controller.reconfigure(Limits(slots=1, queue_len=0, mode=Mode.BACKPRESSURE_FIRST, order=Order.FIFO), 1, 3.0)
    assert controller.snapshot(3.0).queue_len == 2
    controller.release("a", 4.0)
    assert words(controller.take_verdicts()) == ["first admit"]
    controller.tick(11.0)
    assert words(controller.take_verdicts()) == ["second reject expired"]


def test_other_gates_take_effect_at_once() -> None:
    """A guard that is put in force shuts the pool for newcomers; taken out again, it lets through who waited for it."""
    controller = pool(slots=None)
    controller.submit(patient("a"), 0.0)
    guarded = Limits(mode=Mode.BACKPRESSURE_FIRST, gates=(GateName.CONCURRENCY,), concurrency=1)
    controller.reconfigure(guarded, 1, 1.0)
    assert words([controller.submit(patient("b"), 1.0)]) == ["b enqueue concurrency"]
    controller.reconfigure(Limits(mode=Mode.BACKPRESSURE_FIRST), 1, 2.0)
    assert words(controller.take_verdicts()) == ["b admit"]


def test_a_window_put_in_force_later_starts_like_any_other() -> None:
    """A p99 window that comes with new limits begins at its 64 requests, those that run already included."""
    controller = pool(slots=None)
    for i in range(60):
        controller.submit(patient(str(i)), 0.0)
    windowed = Limits(mode=Mode.BACKPRESSURE_FIRST, gates=(GateName.P99_WINDOW,))
    controller.reconfigure(windowed, 1, 1.0)
    decisions = words([controller.submit(patient(f"w{i}"), 1.0) for i in range(5)])
    assert decisions == ["w0 admit", "w1 admit", "w2 admit", "w3 admit", "w4 enqueue p99_window"]


def test_what_was_learned_outlives_the_process() -> None:
    """Pace, calibration and step times of another process's engines are taken over; a damaged record is refused."""
    before, after = pool(slots=None), pool(slots=None)
    for i in range(20):
        name, now_s = f"w{i}", 3.0 * i
        before.submit(patient(name, completion_tokens_max=None, log_mean=3.0), now_s)
        before.tick(now_s + 1.0)
        before.release(name, now_s + 2.5)
        assert before.settle(outcome(name), now_s + 2.6)
    saved = before.dump_pace()
    fresh = after.dump_pace()
    assert all(saved[part] != fresh[part] for part in ("tau_s", "calibration", "engines"))
    after.restore_pace(saved)
    assert after.dump_pace() == saved
    expected = [
        controller.price(patient(completion_tokens_max=None, log_mean=3.0)).completion_tokens
        for controller in (before, after, pool(slots=None))
    ]
    assert expected[1] == pytest.approx(expected[0], rel=0.05) == pytest.approx(101, rel=0.25)  # after answers of 101
    assert expected[2] < 40.0


@pytest.mark.parametrize(
    "damage", [{"tau_s": -1.0}, {"calibration": 7}, {"engines": []}, {"engines": {"": {"steps": 1}}}]
)
def test_a_damaged_record_of_what_was_learned_is_refused(damage: dict[str, object]) -> None:
    """What is no record of ours is an error, and an empty one says nothing."""
    controller = pool()
    with pytest.raises(ValueError):  # noqa: PT011 - each part words its own
        controller.restore_pace(damage)
    before = controller.dump_pace()
    controller.restore_pace({})
    assert controller.dump_pace() == before
