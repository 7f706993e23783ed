"""How long a request may wait, on arrival and in the queue, and when a refused one should come back."""

from typing import Any

import pytest

from tidegate.admission.decision import Admit, Decision, Enqueue, Reason, Reject, Rule, Verdict
from tidegate.admission.limits import Limits, Mode
from tidegate.admission.load import Load
from tidegate.admission.queues.base import Waiting
from tidegate.admission.queues.orders import Order
from tidegate.admission.rules import decide, evict, gates_of, reconsider
from tidegate.admission.work import Work

from .builders import StillEngine, cost, engine, full, gone, load, patient

LIMITS = Limits()


def decided(work: Work, found: Load, limits: Limits = LIMITS) -> Decision:
    return decide(work, found, limits, now_s=0.0, gates=gates_of(limits))


def rule_of(work: Work, found: Load, limits: Limits = LIMITS) -> Rule:
    return decided(work, found, limits).reason.rule


def behind(seconds: float, *engines: StillEngine, **facts: Any) -> Load:
    """A pool in which so many bottleneck seconds are served before the request, and no others wait."""
    shut = engines or (full(),)
    return load(*shut, queue_len=1, ahead_len=1, ahead_s=seconds, queued_s=seconds, **facts)


@pytest.mark.parametrize(
    ("mode", "order", "wait_s", "rule"),
    [
        (Mode.HYBRID, Order.COST_DEADLINE, 4.4, Rule.SLOTS),
        (Mode.HYBRID, Order.COST_DEADLINE, 4.6, Rule.WAIT_TOO_LONG),  # past 2.25 times the 2 s budget
        (Mode.HYBRID, Order.FIFO, 0.9, Rule.SLOTS),
        (Mode.HYBRID, Order.FIFO, 1.1, Rule.WAIT_TOO_LONG),  # past half of the 2 s budget
        (Mode.ADMISSION_FIRST, Order.COST_DEADLINE, 0.7, Rule.SLOTS),
        (Mode.ADMISSION_FIRST, Order.COST_DEADLINE, 0.8, Rule.WAIT_TOO_LONG),  # past 2.5 times the 0.3 s hold
        (Mode.BACKPRESSURE_FIRST, Order.COST_DEADLINE, 4.9, Rule.SLOTS),
        (Mode.BACKPRESSURE_FIRST, Order.COST_DEADLINE, 5.1, Rule.WAIT_TOO_LONG),  # past half of the 10 s timeout
        (Mode.BACKPRESSURE_FIRST, Order.FIFO, 4.9, Rule.SLOTS),
        (Mode.BACKPRESSURE_FIRST, Order.FIFO, 5.1, Rule.WAIT_TOO_LONG),
    ],
)
def test_a_wait_that_is_too_long_is_refused_at_once(mode: Mode, order: Order, wait_s: float, rule: Rule) -> None:
    """The longest predicted wait follows from the mode, the order, the budget and the client's timeout."""
    work = patient(ttft_budget_s=2.0, client_timeout_s=10.0)
    decision = decided(work, behind(wait_s), Limits(mode=mode, order=order))
    assert decision.reason.rule is rule
    if isinstance(decision, Reject):
        assert decision.status == 429
        assert decision.reason.measured > decision.reason.threshold


def test_time_in_the_engine_counts_against_patience() -> None:
    """Queue and engine together may take half the timeout to the first token: 3 s of queue leave 2 s to the engine."""
    work, limits = patient(client_timeout_s=10.0), Limits(mode=Mode.BACKPRESSURE_FIRST)
    soon, late = full(first_token_s=1.9), full(first_token_s=2.1)
    assert rule_of(work, behind(3.0, soon), limits) is Rule.SLOTS
    assert decided(work, behind(3.0, late), limits).reason == Reason(Rule.WAIT_TOO_LONG, 5.1, 5.0, "s")


def test_the_queue_alone_must_be_bearable() -> None:
    """What gateway and client can hold bounds the queue: 2.5 times 1 s of hold, however large the budget."""
    work = patient(ttft_budget_s=20.0, hold_s_max=1.0)
    assert rule_of(work, behind(2.4)) is Rule.SLOTS
    assert rule_of(work, behind(2.6)) is Rule.WAIT_TOO_LONG


def test_a_prefill_longer_than_the_hold_never_waits() -> None:
    """Waiting can only make it later; it goes at once where there is room, even past others' predicted waits."""
    slow = 3.0  # of a budget of 2 s
    work = patient(ttft_budget_s=2.0)
    assert rule_of(work, load(full(first_token_s=slow))) is Rule.WAIT_TOO_LONG
    assert rule_of(work, load(engine(first_token_s=slow))) is Rule.CAPACITY


def test_a_first_token_may_be_late_where_nobody_waits() -> None:
    """A prefill of 1.2 budgets may wait in an empty queue, and no longer once others are late for it."""
    work = patient(ttft_budget_s=2.0)
    slow = full(first_token_s=2.4)
    assert rule_of(work, load(slow)) is Rule.SLOTS
    assert rule_of(work, load(slow, queue_len=1, queued_s=1.0)) is Rule.WAIT_TOO_LONG


def test_a_short_hold_still_queues_for_a_short_wait() -> None:
    """A hold of 150 ms lets a request wait where the queue is predicted to take at most 2.5 of it, and only there."""
    work = patient(hold_s_max=0.15)
    assert rule_of(work, load(full())) is Rule.SLOTS
    assert rule_of(work, behind(0.37)) is Rule.SLOTS
    assert rule_of(work, behind(0.38)) is Rule.WAIT_TOO_LONG
    assert rule_of(work, behind(0.37, full(first_token_s=10.0))) is Rule.SLOTS


def test_more_engines_and_faster_ones_shorten_the_wait() -> None:
    """The predicted wait is what is ahead over what all engines take up in a second."""
    work = patient(ttft_budget_s=2.0)
    ahead_s = 9.0
    assert rule_of(work, behind(ahead_s)) is Rule.WAIT_TOO_LONG
    assert rule_of(work, behind(ahead_s, full("a"), full("b"), full("c"))) is Rule.SLOTS
    assert rule_of(work, behind(ahead_s, drain_rate=2.0)) is Rule.WAIT_TOO_LONG  # 4.5 s of queue, and its own prefill
    assert rule_of(work, behind(ahead_s, drain_rate=2.1)) is Rule.SLOTS


def test_what_waits_behind_does_not_count() -> None:
    """Only what is served before it delays a request, however much waits."""
    work = patient(ttft_budget_s=2.0)
    assert rule_of(work, load(full(), queue_len=40, queued_s=900.0)) is Rule.SLOTS


def test_without_early_refusals_a_wait_too_long_is_waited() -> None:
    """Where nothing is refused ahead of time, only a hold of none still is."""
    limits = Limits(early_reject=False)
    assert rule_of(patient(ttft_budget_s=2.0), behind(1e6), limits) is Rule.SLOTS
    assert rule_of(patient(hold_s_max=0.0), load(full()), limits) is Rule.WAIT_TOO_LONG


def test_a_whole_answer_must_fit_the_timeout() -> None:
    """A client that is not streamed to waits for the whole answer: it is refused where that takes too long for it."""
    slow = load(full(), cost=cost(answer_s=20.0))
    assert rule_of(patient(client_timeout_s=10.0), slow) is Rule.SLOTS
    assert rule_of(patient(client_timeout_s=10.0, stream=False), slow) is Rule.WAIT_TOO_LONG


@pytest.mark.parametrize(("queued_s", "retry_after_s"), [(0.1, 1.0), (8.0, 4.0), (59.0, 29.5), (1e9, 30.0)])
def test_retry_after_is_the_time_to_drain(queued_s: float, retry_after_s: float) -> None:
    """A refusal for load names the seconds until two engines have served what waits now, within 1 and 30."""
    crowded = load(full("a"), full("b"), queue_len=4, ahead_len=4, queue_len_max=4, queued_s=queued_s)
    decision = decided(patient(), crowded)
    assert isinstance(decision, Reject)
    assert decision.retry_after_s == retry_after_s


def waiting(**facts: Any) -> Waiting:
    return Waiting(work=patient(**facts), since_s=0.0, first_s=0.0, expires_at_s=10.0, cost_s=0.01)


def reconsidered(found: Load, now_s: float, limits: Limits = LIMITS, /, **facts: Any) -> Verdict | Reason:
    return reconsider(waiting(**facts), found, limits, now_s=now_s, gates=gates_of(limits))


def test_in_the_queue_a_shut_gate_means_waiting() -> None:
    """A queued request has no verdict while no engine lives, or none whose gates are open."""
    assert isinstance(reconsidered(load(full()), 1.0), Reason)
    assert isinstance(reconsidered(load(full("a"), full("b")), 1.0), Reason)
    assert isinstance(reconsidered(gone(), 1.0), Reason)


def test_in_the_queue_room_means_admission() -> None:
    """A queued request goes to the first engine that is open, with the time it waited and what it books."""
    verdict = reconsidered(load(full("a"), engine("b"), engine("c"), cost=cost(kv_tokens=9)), 1.5)
    assert verdict == Admit(
        id="w", reason=Reason(Rule.CAPACITY, 1, 4, "sequences"), waited_s=1.5, kv_tokens=9, engine="b"
    )


def test_in_the_queue_time_runs_out() -> None:
    """A queued request is refused with 503 when its time is up: `no_engine` where there was none to wait for."""
    late = reconsidered(load(), 10.0)
    assert isinstance(late, Reject)
    assert (late.reason, late.status, late.waited_s) == (Reason(Rule.EXPIRED, 10.0, 10.0, "s"), 503, 10.0)
    assert isinstance(reconsidered(load(), 9.99), Admit)
    gone_for_good = reconsidered(gone(), 10.0)
    assert isinstance(gone_for_good, Reject)
    assert (gone_for_good.reason.rule, gone_for_good.status) == (Rule.NO_ENGINE, 503)


def test_in_the_queue_a_first_token_that_comes_too_late_counts_as_expired() -> None:
    """In hybrid mode a request expires when its first token can no longer come within 0.9 budgets, or 1.3 where
    nobody else waits.
    """
    slow = engine(first_token_s=1.0)
    assert isinstance(reconsidered(load(slow, queued_s=9.0), 0.7, ttft_budget_s=2.0), Admit)
    assert isinstance(reconsidered(load(slow, queued_s=9.0), 0.9, ttft_budget_s=2.0), Reject)
    assert isinstance(reconsidered(load(slow), 1.5, ttft_budget_s=2.0), Admit)
    late = reconsidered(load(slow), 1.7, ttft_budget_s=2.0)
    assert isinstance(late, Reject)
    assert late.reason.rule is Rule.EXPIRED
    assert late.reason.threshold == pytest.approx(1.6)


def test_in_the_queue_shutting_down_refuses() -> None:
    """A pool that shuts down lets nobody wait, not even for room that there is."""
    verdict = reconsidered(load(draining=True), 2.0)
    assert isinstance(verdict, Reject)
    assert (verdict.reason.rule, verdict.status, verdict.waited_s) == (Rule.SHUTTING_DOWN, 503, 2.0)


def test_in_the_queue_shrunk_limits_refuse_what_no_longer_fits() -> None:
    """A request that an engine can never hold any more is refused when its turn comes."""
    verdict = reconsidered(load(), 1.0, Limits(kv_tokens=5))
    assert isinstance(verdict, Reject)
    assert (verdict.reason.rule, verdict.status) == (Rule.REQUEST_TOO_LARGE, 413)


def test_whoever_makes_room_is_told_that_the_queue_is_full() -> None:
    """An evicted request is 429 with its waiting time and the time to drain."""
    verdict = evict(waiting(), load(full(), queue_len=2, queue_len_max=2, queued_s=6.0), now_s=3.0)
    assert verdict == Reject(id="w", reason=Reason(Rule.QUEUE_FULL, 2, 2, "requests"), retry_after_s=6.0, waited_s=3.0)
    assert verdict.status == 429


def test_a_hold_told_on_arrival_starts_then() -> None:
    """The expiry is the arrival plus the hold: 0.9 budgets, or what a prefill leaves of 1.3."""
    work = patient(ttft_budget_s=2.0, hold_s_max=9.0)
    for first_token_s, hold_s in ((0.01, 1.8), (1.0, 1.6)):
        found = load(full(first_token_s=first_token_s))
        decision = decide(work, found, LIMITS, now_s=100.0, gates=gates_of(LIMITS))
        assert isinstance(decision, Enqueue)
        assert decision.expires_at_s == pytest.approx(100.0 + hold_s)
