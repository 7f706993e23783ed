"""The decision as a pure function."""

from typing import Any

import pytest

from tidegate.admission.decision import Admit, Enqueue, Reason, Reject, Rule
from tidegate.admission.limits import Limits, Mode
from tidegate.admission.queues.base import Waiting
from tidegate.admission.rules import decide, reconsider
from tidegate.admission.work import Work

from .builders import cost, load, patient

FULL = {"sequences": 4, "kv_tokens": 400}
LIMITS = Limits(slots=4, kv_tokens=1000, queue_len=2)


def rule_of(work: Work, limits: Limits = LIMITS, /, **facts: Any) -> Rule:
    return decide(work, load(**facts), limits, now_s=0.0).reason.rule


def test_an_idle_pool_admits() -> None:
    """A request that fits and finds nobody waiting goes at once."""
    decision = decide(patient(), load(), LIMITS, now_s=5.0)
    assert decision == Admit(id="w", reason=Reason(Rule.CAPACITY, 1, 4, "sequences"), kv_tokens=1)


def test_a_full_pool_lets_wait() -> None:
    """Where a gate is shut, the request waits for its hold and is told which gate, with figures."""
    decision = decide(patient(hold_s_max=7.0, ttft_budget_s=60.0), load(**FULL), LIMITS, now_s=100.0)
    assert decision == Enqueue(id="w", reason=Reason(Rule.SLOTS, 5, 4, "sequences"), expires_at_s=107.0)


def test_kv_tokens_bind_on_their_own() -> None:
    """Free slots do not help where KV tokens are short."""
    decision = decide(patient(), load(sequences=1, kv_tokens=900, cost=cost(kv_tokens=200)), LIMITS, now_s=0.0)
    assert decision.reason == Reason(Rule.KV_TOKENS, 1100, 1000, "tokens")


def test_whoever_waits_goes_first() -> None:
    """A newcomer that would fit queues behind those that wait already."""
    decision = decide(patient(), load(queue_len=1, ahead_len=1), LIMITS, now_s=0.0)
    assert isinstance(decision, Enqueue)
    assert decision.reason == Reason(Rule.QUEUE_ORDER, 1, 0, "requests")


def test_the_queue_bound_holds_for_all() -> None:
    """At the bound a newcomer is refused with 429, whether a gate is shut or only the order is against it."""
    assert rule_of(patient(), queue_len=2, ahead_len=2, **FULL) is Rule.QUEUE_FULL
    assert rule_of(patient(), queue_len=2, ahead_len=2) is Rule.QUEUE_FULL
    assert rule_of(patient(), queue_len=2, ahead_len=2, engines=2, **FULL) is Rule.QUEUE_ORDER


def test_draining_comes_first() -> None:
    """A pool that shuts down refuses with 503, also what would fit."""
    decision = decide(patient(), load(draining=True), LIMITS, now_s=0.0)
    assert isinstance(decision, Reject)
    assert (decision.reason.rule, decision.status, decision.retry_after_s) == (Rule.SHUTTING_DOWN, 503, 1.0)


@pytest.mark.parametrize("facts", [{"sequences": 5}, {"prompt_tokens": 1000}, {"prompt_tokens": 10**400}])
def test_what_never_fits_a_stated_limit_is_413(facts: dict[str, Any]) -> None:
    """A request larger than an engine will ever hold is told so, and not to come back."""
    stated = Limits(slots=4, kv_tokens=1000, slots_stated=True, kv_tokens_stated=True)
    decision = decide(patient(**facts), load(), stated, now_s=0.0)
    assert isinstance(decision, Reject)
    assert (decision.reason.rule, decision.status, decision.retry_after_s) == (Rule.REQUEST_TOO_LARGE, 413, None)
    assert "request_too_large" in str(decision.reason)


def test_a_guessed_limit_refuses_nothing_for_ever() -> None:
    """Where nobody stated the capacity, a request larger than the guess runs when it is alone."""
    assert rule_of(patient(sequences=5, prompt_tokens=5000), cost=cost(sequences=4, kv_tokens=1000)) is Rule.CAPACITY


def test_alone_always_fits() -> None:
    """While the ramp leaves less than one engine, the only request in the pool is still admitted."""
    assert rule_of(patient(), cost=cost(sequences=4, kv_tokens=1000), share=0.25) is Rule.CAPACITY


@pytest.mark.parametrize("facts", [FULL, {"engines": 0}, {"draining": True, **FULL}, {"queue_len": 2, **FULL}])
def test_what_cannot_be_refused_is_admitted(facts: dict[str, Any]) -> None:
    """A request that cannot be refused is booked over the limit, and the verdict says so."""
    stated = Limits(slots=4, kv_tokens=1000, kv_tokens_stated=True)
    decision = decide(patient(refusable=False, prompt_tokens=5000), load(**facts), stated, now_s=0.0)
    assert isinstance(decision, Admit)
    assert decision.reason.rule is Rule.NOT_REFUSABLE


def test_what_cannot_be_refused_but_fits_is_plain() -> None:
    """Where it fits, such a request is nothing special."""
    assert rule_of(patient(refusable=False)) is Rule.CAPACITY


def test_no_engine_is_503_even_with_a_full_queue() -> None:
    """Without any engine a request waits if it may; else it is 503, never 429: the pool is not loaded, it is gone."""
    assert isinstance(decide(patient(), load(engines=0), LIMITS, now_s=0.0), Enqueue)
    for work, facts in [(patient(), {"queue_len": 2}), (patient(hold_s_max=0.0), {})]:
        decision = decide(work, load(engines=0, **facts), LIMITS, now_s=0.0)
        assert isinstance(decision, Reject)
        assert (decision.reason.rule, decision.status, decision.retry_after_s) == (Rule.NO_ENGINE, 503, 10.0)


@pytest.mark.parametrize(
    ("mode", "wait_s", "rule"),
    [
        (Mode.HYBRID, 0.9, Rule.SLOTS),
        (Mode.HYBRID, 1.1, Rule.WAIT_TOO_LONG),  # past half of the 2 s budget
        (Mode.ADMISSION_FIRST, 0.2, Rule.SLOTS),
        (Mode.ADMISSION_FIRST, 0.4, Rule.WAIT_TOO_LONG),  # past the 0.3 s hold
        (Mode.BACKPRESSURE_FIRST, 4.0, Rule.SLOTS),
        (Mode.BACKPRESSURE_FIRST, 5.5, Rule.WAIT_TOO_LONG),  # past half of the 10 s timeout
    ],
)
def test_a_wait_that_is_too_long_is_refused_at_once(mode: Mode, wait_s: float, rule: Rule) -> None:
    """The longest predicted wait follows from the mode, the budget and the client's timeout."""
    work = patient(ttft_budget_s=2.0, client_timeout_s=10.0)
    assert rule_of(work, Limits(slots=4, mode=mode), queue_len=1, ahead_len=1, ahead_s=wait_s, **FULL) is rule


def test_a_short_hold_still_queues_for_a_shorter_wait() -> None:
    """A hold of 150 ms lets a request wait where the queue is predicted to take less, and only there."""
    work = patient(hold_s_max=0.15)
    assert rule_of(work, **FULL) is Rule.SLOTS
    assert rule_of(work, queue_len=1, ahead_len=1, ahead_s=0.1, **FULL) is Rule.SLOTS
    assert rule_of(work, queue_len=1, ahead_len=1, ahead_s=0.2, **FULL) is Rule.WAIT_TOO_LONG


def test_more_engines_and_faster_ones_shorten_the_wait() -> None:
    """The predicted wait is what is ahead over what all engines take up in a second."""
    ahead = {"queue_len": 1, "ahead_len": 1, "ahead_s": 3.0, "sequences": 16, "kv_tokens": 400}
    work = patient(ttft_budget_s=2.0)
    assert rule_of(work, drain_rate=1.0, **ahead) is Rule.WAIT_TOO_LONG
    assert rule_of(work, drain_rate=1.0, engines=4, **ahead) is Rule.SLOTS
    assert rule_of(work, drain_rate=3.0, **ahead) is Rule.WAIT_TOO_LONG  # 1 s of queue, and its own prefill
    assert rule_of(work, drain_rate=3.1, **ahead) is Rule.SLOTS


def test_a_whole_answer_must_fit_the_timeout() -> None:
    """A client that is not streamed to waits for the whole answer: it is refused where that takes too long for it."""
    slow = cost(answer_s=20.0)
    assert rule_of(patient(client_timeout_s=10.0), cost=slow, **FULL) is Rule.SLOTS
    assert rule_of(patient(client_timeout_s=10.0, stream=False), cost=slow, **FULL) is Rule.WAIT_TOO_LONG


def test_retry_after_is_the_time_to_drain() -> None:
    """A refusal for load names the seconds until what waits now is served, within 1 and 30."""
    for queued_s, retry_after_s in [(0.1, 1.0), (8.0, 4.0), (1e9, 30.0)]:
        facts = load(queue_len=4, ahead_len=4, queued_s=queued_s, engines=2, sequences=8)
        decision = decide(patient(), facts, LIMITS, now_s=0.0)
        assert isinstance(decision, Reject)
        assert decision.retry_after_s == retry_after_s


def waiting(**facts: Any) -> Waiting:
    return Waiting(work=patient(**facts), since_s=0.0, expires_at_s=10.0, cost_s=0.01)


def test_in_the_queue_a_shut_gate_means_waiting() -> None:
    """A queued request has no verdict while a gate is shut or no engine lives."""
    assert reconsider(waiting(), load(**FULL), LIMITS, now_s=1.0) is None
    assert reconsider(waiting(), load(engines=0), LIMITS, now_s=1.0) is None


def test_in_the_queue_room_means_admission() -> None:
    """A queued request that fits is admitted, with the time it waited."""
    verdict = reconsider(waiting(), load(), LIMITS, now_s=1.5)
    assert isinstance(verdict, Admit)
    assert verdict.waited_s == 1.5


def test_in_the_queue_time_runs_out() -> None:
    """A queued request is refused with 503 when its time is up: `no_engine` where there was none to wait for."""
    late = reconsider(waiting(), load(), LIMITS, now_s=10.0)
    assert isinstance(late, Reject)
    assert (late.reason, late.status, late.waited_s) == (Reason(Rule.EXPIRED, 10.0, 10.0, "s"), 503, 10.0)
    gone = reconsider(waiting(), load(engines=0), LIMITS, now_s=10.0)
    assert gone is not None
    assert gone.reason.rule is Rule.NO_ENGINE


def test_in_the_queue_a_first_token_that_comes_too_late_counts_as_expired() -> None:
    """In hybrid mode a request expires when its first token could no longer come within nine tenths of its budget."""
    slow = load(cost=cost(ttft_s=1.0))
    assert isinstance(reconsider(waiting(ttft_budget_s=2.0), slow, LIMITS, now_s=0.7), Admit)
    assert isinstance(reconsider(waiting(ttft_budget_s=2.0), slow, LIMITS, now_s=0.9), Reject)


def test_in_the_queue_shrunk_limits_refuse_what_no_longer_fits() -> None:
    """A request that an engine can never hold any more is refused when its turn comes."""
    shrunk = Limits(kv_tokens=5, kv_tokens_stated=True)
    verdict = reconsider(waiting(), load(), shrunk, now_s=1.0)
    assert verdict is not None
    assert verdict.reason.rule is Rule.REQUEST_TOO_LARGE
