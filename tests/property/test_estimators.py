"""Whatever is asked and taught, in whatever order, every estimator answers within its bounds."""

from collections.abc import Callable
from copy import deepcopy
from functools import cache
from math import isfinite

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tidegate_estimator import (
    CompletionRequest,
    CostEstimate,
    Estimator,
    GuardedEstimator,
    Message,
    NgramEstimator,
    Source,
    WindowEstimator,
)
from tidegate_estimator.features import read_features, rows_of
from tidegate_estimator.ngram_ticket import open_ngram_ticket

TICKET_BYTES_MAX = 480  # sealed and in base64 it has to fit the access log
ESTIMATORS = [WindowEstimator, NgramEstimator, GuardedEstimator]

counts = st.integers(0, 5000) | st.integers()
names = st.sampled_from(["", "a", "user", "assistant", "system", "tool"]) | st.text(st.characters(), max_size=8)
texts = st.text(st.characters(), max_size=900) | st.text("ab 1?\n汉\ud800", max_size=900)
messages = st.builds(Message, role=names, text=texts)
requests = st.builds(
    CompletionRequest,
    tenant=names,
    model=names,
    messages=st.lists(messages, max_size=4).map(tuple),
    prompt_chars=counts,
    prompt_tokens=st.none() | counts,
    media_tokens=counts,
    max_tokens=st.none() | counts,
    min_tokens=counts,
    sequences=st.integers(1, 8) | st.integers(),
    ignore_eos=st.booleans(),
    tools=counts,
    structured=st.booleans(),
    reasoning_effort=names,
    temperature=st.none() | st.floats(),
    stop=counts,
)
reasons = st.sampled_from(["stop", "length", "abort", "", "tool_calls", "nonsense"])


def check(request: CompletionRequest, estimate: CostEstimate) -> None:
    figures = [estimate.p50, estimate.p80, estimate.p90, estimate.p95]
    assert figures == sorted(figures)
    assert all(isfinite(x) and x >= 1.0 for x in [*figures, estimate.mean])
    assert isfinite(estimate.log_mean)
    assert 0.0 < estimate.log_sigma <= 2.0
    assert estimate.prompt_tokens >= 0
    assert len(estimate.ticket) <= TICKET_BYTES_MAX
    if request.max_tokens is not None and request.max_tokens >= 1 and request.sequences >= 1:
        bound = request.max_tokens * request.sequences
        assert max(figures[-1], estimate.mean) <= bound * (1 + 1e-9)
    if estimate.source is Source.CAP:
        assert figures[0] == figures[-1]


class Teaching(RuleBasedStateMachine):
    """Estimates and answers in any order, tickets used once, twice, never, or damaged."""

    tickets = Bundle("tickets")

    def __init__(self, make: Callable[[], Estimator]) -> None:
        super().__init__()
        self.make = make
        self.estimator = make()

    @rule(target=tickets, request=requests)
    def estimate(self, request: CompletionRequest) -> bytes:
        estimate = self.estimator.estimate(request)
        check(request, estimate)
        assert estimate == self.estimator.estimate(request), "an estimate changes nothing"
        return estimate.ticket

    @rule(ticket=tickets, tokens=counts, reason=reasons, prompt_tokens=st.none() | counts, times=st.integers(1, 40))
    def learn(self, ticket: bytes, tokens: int, reason: str, prompt_tokens: int | None, times: int) -> None:
        for _ in range(times):
            self.estimator.learn(ticket, tokens, reason, prompt_tokens)

    @rule(ticket=st.binary(max_size=TICKET_BYTES_MAX), tokens=counts, reason=reasons)
    def learn_garbage(self, ticket: bytes, tokens: int, reason: str) -> None:
        before = self.estimator.dump()
        assert not self.estimator.learn(ticket, tokens, reason, tokens)
        assert self.estimator.dump() == before

    @rule(ticket=tickets | st.binary(max_size=60), generated=counts)
    def remaining(self, ticket: bytes, generated: int) -> None:
        left = self.estimator.remaining(ticket, generated)
        assert isfinite(left)
        assert left >= 0.0

    @rule()
    def restart(self) -> None:
        state = self.estimator.dump()
        assert self.estimator.snapshot()() == state
        self.estimator = self.make()
        self.estimator.load(state)
        assert self.estimator.dump() == state

    @invariant()
    def answers_a_plain_request(self) -> None:
        request = CompletionRequest(tenant="a", model="a", prompt_chars=400, max_tokens=256)
        check(request, self.estimator.estimate(request))


@pytest.mark.parametrize("make", ESTIMATORS)
def test_any_course_of_estimates_and_answers(make: Callable[[], Estimator]) -> None:
    """No request, answer, ticket or restart brings an estimator out of its bounds."""
    run_state_machine_as_test(lambda: Teaching(make), settings=settings(max_examples=40, stateful_step_count=20))


@pytest.mark.parametrize("make", ESTIMATORS)
@settings(max_examples=100)
@given(garbage=st.binary(max_size=200), at=st.integers(0, 4000), mask=st.integers(0, 255))
def test_any_damage_to_a_state_is_a_value_error(
    make: Callable[[], Estimator], garbage: bytes, at: int, mask: int
) -> None:
    """Loading raises ValueError or nothing, whatever the bytes."""
    estimator = make()
    estimator.learn(estimator.estimate(CompletionRequest(prompt_chars=50)).ticket, 20, "stop", 11)
    state = bytearray(estimator.dump())
    state[at % len(state)] ^= mask
    for damaged in (garbage, bytes(state), estimator.dump()[:at]):
        try:
            estimator.load(damaged)
        except ValueError:
            continue
        assert damaged == estimator.dump()


@settings(max_examples=150)
@given(requests)
def test_a_ticket_says_again_what_was_read(request: CompletionRequest) -> None:
    """The features put together from a ticket of the n-grams are those of the request."""
    opened = open_ngram_ticket(NgramEstimator().estimate(request).ticket)
    assert opened is not None
    assert rows_of(opened.features).rows.tolist() == rows_of(read_features(request)).rows.tolist()


def ask(tenant: str, number: int = 0) -> CompletionRequest:
    message = Message(role="user", text=f"tell me about number {number}")
    return CompletionRequest(tenant=tenant, model="m", messages=(message,), prompt_chars=30)


@cache
def drifted() -> GuardedEstimator:
    """With a tenant `changed` that answers 20 tokens instead of 400, and is on the wider source."""
    estimator = GuardedEstimator()
    for number in range(60):
        for tenant, tokens in (("changed", 400), ("other", 20 + number % 5), ("other", 18 + number % 5)):
            estimator.learn(estimator.estimate(ask(tenant, number)).ticket, tokens, "stop")
    for ticket in [estimator.estimate(ask("changed", number)).ticket for number in range(30)]:
        estimator.learn(ticket, 20, "stop")
    assert estimator.estimate(ask("changed")).source is Source.WIDER
    return estimator


class Restarting(RuleBasedStateMachine):
    """An estimator that is saved and loaded now and then, beside one that lives on.

    The weights of the second go through the file as well. So they are rounded alike, and the two must agree to the last
    digit: no tolerance would do, since a quantile between two humps moves far at the least change of a weight.
    """

    def __init__(self) -> None:
        super().__init__()
        self.restarted, self.living = deepcopy(drifted()), deepcopy(drifted())

    @rule(
        tenant=st.sampled_from(["changed", "other", "new"]),
        tokens=st.sampled_from([5, 20, 90, 400, 2000]),
        reason=st.sampled_from(["stop", "stop", "abort"]),
        times=st.integers(1, 25),
    )
    def learn(self, tenant: str, tokens: int, reason: str, times: int) -> None:
        for estimator in (self.restarted, self.living):
            for number in range(times):
                estimator.learn(estimator.estimate(ask(tenant, number)).ticket, tokens, reason)

    @rule()
    def restart(self) -> None:
        state = self.restarted.dump()
        self.restarted = GuardedEstimator()
        self.restarted.load(state)
        self.living._ngrams.load(self.living._ngrams.dump())

    @invariant()
    def both_predict_the_same(self) -> None:
        for tenant in ("changed", "other", "new", "unknown"):
            assert self.restarted.estimate(ask(tenant)) == self.living.estimate(ask(tenant))

    def teardown(self) -> None:
        self.restart()
        assert self.restarted.dump() == self.living.dump()


def test_a_restart_at_any_time_changes_no_prediction() -> None:
    """Learned, saved and loaded in any order, it predicts what it would have without, but for the weights' rounding."""
    run_state_machine_as_test(Restarting, settings=settings(max_examples=40, stateful_step_count=20))
