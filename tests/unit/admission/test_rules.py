"""The decision on a request that arrives, as a pure function."""

from typing import Any

import pytest

from tidegate.admission.decision import Admit, Decision, Enqueue, Reason, Reject, Rule
from tidegate.admission.gates import GATES
from tidegate.admission.limits import GATES_DEFAULT, GateName, Limits
from tidegate.admission.load import Load, Signals
from tidegate.admission.rules import decide, gates_of
from tidegate.admission.work import Work

from .builders import cost, engine, full, gone, load, patient

LIMITS = Limits()
STATED = Limits(slots=4, kv_tokens=1000)


def decided(work: Work, found: Load, limits: Limits = LIMITS, *, now_s: float = 0.0) -> Decision:
    return decide(work, found, limits, now_s=now_s, gates=gates_of(limits))


def rule_of(work: Work, found: Load, limits: Limits = LIMITS) -> Rule:
    return decided(work, found, limits).reason.rule


def test_the_gates_in_force_are_those_named_in_their_own_order() -> None:
    """However they were listed, slots are asked first and guards last; four of them unless others are named."""
    assert gates_of(Limits()) == tuple(GATES[name] for name in GATES_DEFAULT)
    named = Limits(gates=(GateName.MEMORY_FLOOR, GateName.KV, GateName.SLOTS))
    assert gates_of(named) == (GATES[GateName.SLOTS], GATES[GateName.KV], GATES[GateName.MEMORY_FLOOR])
    assert gates_of(Limits(gates=())) == ()


def test_an_idle_pool_admits() -> None:
    """A request that fits and finds nobody waiting goes at once, with what it books."""
    decision = decided(patient(), load(engine(), cost=cost(kv_tokens=7)), now_s=5.0)
    assert decision == Admit(id="w", reason=Reason(Rule.CAPACITY, 1, 4, "sequences"), kv_tokens=7)


def test_a_full_pool_lets_wait() -> None:
    """Where a gate is shut, the request waits for its hold and is told which gate, with figures."""
    decision = decided(patient(hold_s_max=7.0, ttft_budget_s=60.0), load(full()), now_s=100.0)
    assert decision == Enqueue(id="w", reason=Reason(Rule.SLOTS, 5, 4, "sequences"), expires_at_s=107.0)


def test_kv_tokens_bind_on_their_own() -> None:
    """Free slots do not help where KV tokens are short."""
    short = engine(sequences=1, demand_tokens=1100.0, peak_tokens=960.0)
    assert decided(patient(), load(short)).reason == Reason(Rule.KV_TOKENS, 960.0, 950.0, "tokens")


def test_a_gate_that_is_not_in_force_is_not_asked() -> None:
    """An operator who leaves a gate out is not limited by it."""
    assert rule_of(patient(), load(full()), Limits(gates=(GateName.KV,))) is Rule.CAPACITY
    assert rule_of(patient(), load(full()), Limits(gates=(GateName.KV, GateName.SLOTS))) is Rule.SLOTS


def test_the_most_welcome_engine_that_is_open_gets_it() -> None:
    """Engines come in order of welcome: the first whose gates are open is sent the request, not the emptiest."""
    found = load(full("a"), engine("b", sequences=2), engine("c"))
    decision = decided(patient(), found)
    assert decision == Admit(id="w", reason=Reason(Rule.CAPACITY, 3, 4, "sequences"), kv_tokens=1, engine="b")


def test_where_all_are_shut_the_most_welcome_says_why() -> None:
    """The reason for a wait is that of the engine it would go to first, and so is the time to its first token."""
    short = engine("b", sequences=1, demand_tokens=1100.0, peak_tokens=960.0, first_token_s=5.0)
    assert decided(patient(), load(full("a"), short)).reason.rule is Rule.SLOTS
    assert decided(patient(), load(short, full("a"))).reason.rule is Rule.KV_TOKENS
    hurried = patient(ttft_budget_s=2.0)
    assert isinstance(decided(hurried, load(full("a"), short)), Enqueue)
    assert rule_of(hurried, load(short, full("a"))) is Rule.WAIT_TOO_LONG


def test_whoever_waits_goes_first() -> None:
    """A newcomer that would fit queues behind those that go before it; past those that do not, it goes."""
    decision = decided(patient(), load(queue_len=1, ahead_len=1))
    assert isinstance(decision, Enqueue)
    assert decision.reason == Reason(Rule.QUEUE_ORDER, 1, 0, "requests")
    assert rule_of(patient(), load(queue_len=1, ahead_len=0)) is Rule.CAPACITY


def test_the_queue_bound_holds_for_all() -> None:
    """At the bound a newcomer is refused with 429, whether a gate is shut or only the order is against it."""
    for found in (full(), engine()):
        decision = decided(patient(), load(found, queue_len=2, ahead_len=2, queue_len_max=2))
        assert isinstance(decision, Reject)
        assert (decision.status, decision.reason) == (429, Reason(Rule.QUEUE_FULL, 2, 2, "requests"))


def test_in_a_full_queue_somebody_may_make_room() -> None:
    """A newcomer with a better claim than one that waits is let in, but neither a wait too long nor a missing engine
    is forgiven for it.
    """
    crowded: dict[str, Any] = {"queue_len": 2, "ahead_len": 1, "queue_len_max": 2, "makes_room": True}
    assert isinstance(decided(patient(), load(full(), **crowded)), Enqueue)
    hurried = patient(ttft_budget_s=2.0)
    assert rule_of(hurried, load(full(), ahead_s=5.0, **crowded)) is Rule.WAIT_TOO_LONG
    assert rule_of(patient(), gone(**crowded)) is Rule.NO_ENGINE


def test_a_queue_of_none_never_holds() -> None:
    """With no place in the queue a request goes at once or not at all."""
    assert rule_of(patient(), load(full(), queue_len_max=0)) is Rule.QUEUE_FULL
    assert rule_of(patient(), load(engine(), queue_len_max=0)) is Rule.CAPACITY


def test_draining_comes_first() -> None:
    """A pool that shuts down refuses with 503, also what would fit."""
    decision = decided(patient(), load(draining=True))
    assert isinstance(decision, Reject)
    assert (decision.reason.rule, decision.status, decision.retry_after_s) == (Rule.SHUTTING_DOWN, 503, 1.0)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"sequences": 5}, Reason(Rule.REQUEST_TOO_LARGE, 5, 4, "sequences")),
        ({"prompt_tokens": 1000}, Reason(Rule.REQUEST_TOO_LARGE, 1001, 1000, "tokens")),
        ({"prompt_tokens": 997, "sequences": 4}, Reason(Rule.REQUEST_TOO_LARGE, 1001, 1000, "tokens")),
        ({"prompt_tokens": 10**400}, Reason(Rule.REQUEST_TOO_LARGE, 10**9, 1000, "tokens")),
        ({"sequences": 10**400}, Reason(Rule.REQUEST_TOO_LARGE, 10**9, 4, "sequences")),
    ],
)
def test_what_never_fits_a_stated_limit_is_413(facts: dict[str, Any], reason: Reason) -> None:
    """A request larger than an engine will ever hold is told so, and not to come back, however idle the pool."""
    for found in (load(), load(full(), queue_len=9), gone()):
        decision = decided(patient(**facts), found, STATED)
        assert isinstance(decision, Reject)
        assert (decision.reason, decision.status, decision.retry_after_s) == (reason, 413, None)


def test_what_just_fits_a_stated_limit_is_not_413() -> None:
    """A prompt that leaves room for one token of each sequence may run."""
    assert rule_of(patient(prompt_tokens=999), load(), STATED) is Rule.CAPACITY
    assert rule_of(patient(prompt_tokens=996, sequences=4), load(), STATED) is Rule.CAPACITY


@pytest.mark.parametrize("facts", [{"sequences": 5}, {"prompt_tokens": 5000}, {"prompt_tokens": 10**400}])
def test_a_learned_limit_refuses_nothing_for_ever(facts: dict[str, Any]) -> None:
    """Where nobody stated the capacity, a request larger than what was learned runs when it is alone, else waits."""
    large = {"cost": cost(sequences=4, kv_tokens=1000)}
    crowded = {"demand_tokens": 9e9, "peak_tokens": 9e9}
    assert rule_of(patient(**facts), load(engine(**crowded), **large)) is Rule.CAPACITY
    assert isinstance(decided(patient(**facts), load(engine(sequences=1, **crowded), **large)), Enqueue)


def test_an_empty_engine_is_open_to_whatever_comes() -> None:
    """However little the ramp leaves of an engine and whatever its gates say, the only request in it is admitted."""
    empty = engine(
        slots=1, share=0.25, demand_tokens=9e9, peak_tokens=9e9, prefilling=True, prefill_left_s=99.0, saved_tokens=-1.0
    )
    assert rule_of(patient(), load(empty, cost=cost(sequences=4, kv_tokens=1000))) is Rule.CAPACITY


@pytest.mark.parametrize(
    ("limits", "facts", "reason"),
    [
        (
            Limits(gates=(GateName.CONCURRENCY,), concurrency=3),
            {"in_flight": 3},
            Reason(Rule.CONCURRENCY, 4, 3, "requests"),
        ),
        (
            Limits(gates=(GateName.P99_WINDOW,)),
            {"in_flight": 3, "signals": Signals(p99_window=3.5)},
            Reason(Rule.P99_WINDOW, 4, 3.5, "requests"),
        ),
        (
            Limits(gates=(GateName.LITTLES_LAW,)),
            {"in_flight": 3, "signals": Signals(littles_law=3.9)},
            Reason(Rule.LITTLES_LAW, 4, 3.9, "requests"),
        ),
        (
            Limits(gates=(GateName.MEMORY_FLOOR,), memory_floor_mib=4096),
            {"signals": Signals(memory_free_mib=4000.0)},
            Reason(Rule.MEMORY_FLOOR, 4000.0, 4096, "MiB"),
        ),
    ],
)
def test_guards_of_the_whole_pool_are_asked_even_about_an_empty_engine(
    limits: Limits, facts: dict[str, Any], reason: Reason
) -> None:
    """A guard counts what the whole pool does: an engine of it that happens to be empty has no right of its own."""
    decision = decided(patient(), load(engine(), **facts), limits)
    assert isinstance(decision, Enqueue)
    assert decision.reason == reason
    assert rule_of(patient(), load(engine(), **facts)) is Rule.CAPACITY


@pytest.mark.parametrize(
    "found",
    [load(full()), gone(), load(full(), draining=True), load(full(), queue_len=2, ahead_len=2, queue_len_max=2)],
)
def test_what_cannot_be_refused_is_admitted(found: Load) -> None:
    """A request that cannot be refused is booked over the limit, and the verdict says so, with the gate's figures."""
    decision = decided(patient(refusable=False, prompt_tokens=5000, hold_s_max=0.0), found, STATED)
    assert isinstance(decision, Admit)
    expected = (0.0, 1.0, "engines") if not found.engines else (5, 4, "sequences")
    assert decision.reason == Reason(Rule.NOT_REFUSABLE, *expected)


def test_what_cannot_be_refused_goes_to_an_open_engine_if_there_is_one() -> None:
    """It takes room where there is some, and else the most welcome engine."""
    free = decided(patient(refusable=False), load(full("a"), engine("b")))
    over = decided(patient(refusable=False), load(full("a"), full("b")))
    assert isinstance(free, Admit)
    assert isinstance(over, Admit)
    assert (free.engine, free.reason.rule) == ("b", Rule.CAPACITY)
    assert (over.engine, over.reason.rule) == ("a", Rule.NOT_REFUSABLE)


def test_what_cannot_be_refused_but_fits_is_plain() -> None:
    """Where it fits, such a request is nothing special, however many wait."""
    assert rule_of(patient(refusable=False), load(queue_len=9, ahead_len=9)) is Rule.CAPACITY


def test_no_engine_is_503_even_with_a_full_queue() -> None:
    """Without any engine a request waits if it may; else it is 503, never 429: the pool is not loaded, it is gone."""
    assert isinstance(decided(patient(), gone()), Enqueue)
    slow = {"queue_len": 1, "ahead_len": 1, "ahead_s": 1e9, "queued_s": 1e9}
    assert isinstance(decided(patient(), gone(**slow)), Enqueue)
    for work, found in [(patient(), gone(queue_len=50)), (patient(hold_s_max=0.0), gone())]:
        decision = decided(work, found)
        assert isinstance(decision, Reject)
        assert (decision.reason.rule, decision.status, decision.retry_after_s) == (Rule.NO_ENGINE, 503, 5.0)
