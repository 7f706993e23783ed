"""What an engine's own Retry-After does to the refusals of its pool."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.admission.asked_delay import AskedDelay
from tidegate.admission.controller import Controller
from tidegate.admission.decision import Admit, Reason, Reject, Rule
from tidegate.admission.load import Load
from tidegate.admission.outcome import Ending
from tidegate.admission.retry import retry_after_s

from .builders import gone, load, outcome, patient, pool


def said(retry_after_s: float | None, **facts: Any) -> AskedDelay:
    """What one outcome at 0 s leaves behind, a refusal of the engine's where nothing else is said."""
    delay = AskedDelay()
    defaults: dict[str, Any] = {"ending": Ending.ENGINE_REFUSED, "status": 429, "retry_after_s": retry_after_s}
    delay.learn(outcome(**(defaults | facts)), 0.0)
    return delay


@pytest.mark.parametrize(
    ("retry_after_s", "now_s", "left_s"),
    [
        (7.0, 0.0, 7.0),
        (7.0, 2.5, 5.0),  # whole seconds, upwards
        (7.0, 6.99, 1.0),
        (7.0, 7.0, 0.0),
        (7.0, 99.0, 0.0),
        (86400.0, 0.0, 30.0),
        (86400.0, 29.5, 1.0),
        (0.0, 0.0, 0.0),
        (None, 0.0, 0.0),
    ],
)
def test_what_is_left_of_a_delay(retry_after_s: float | None, now_s: float, left_s: float) -> None:
    """A delay counts down in whole seconds from at most 30, and is over once it has passed."""
    assert said(retry_after_s).left_s(now_s) == left_s


@pytest.mark.parametrize("ending", [ending for ending in Ending if ending is not Ending.ENGINE_REFUSED])
def test_only_a_refusal_of_the_engine_counts(ending: Ending) -> None:
    """Our own refusals carry the same header: taken for the engine's, each delay would breed the next."""
    assert said(20.0, ending=ending).left_s(0.0) == 0.0


def test_the_later_end_wins() -> None:
    """A short delay of one engine does not shorten what another has asked for."""
    delay = said(20.0)
    delay.learn(outcome(ending=Ending.ENGINE_REFUSED, retry_after_s=3.0), 1.0)
    assert delay.left_s(1.0) == 19.0
    delay.learn(outcome(ending=Ending.ENGINE_REFUSED, retry_after_s=25.0), 2.0)
    assert delay.left_s(2.0) == 25.0


@given(st.lists(st.tuples(st.floats(0.0, 100.0), st.floats(0.0, 1e9)), min_size=1, max_size=9), st.floats(0.0, 200.0))
def test_it_is_bounded_and_passes(said: list[tuple[float, float]], later_s: float) -> None:
    """Whatever engines ask for, no more than 30 s are ever left, and none 30 s after the last word."""
    delay, now_s = AskedDelay(), 0.0
    for after_s, asked_s in said:
        now_s += after_s
        delay.learn(outcome(ending=Ending.ENGINE_REFUSED, retry_after_s=asked_s), now_s)
        assert min(asked_s, 30.0) <= delay.left_s(now_s) + 1e-6 <= 30.0 + 1e-6
    left_s = delay.left_s(now_s + later_s)
    assert 0.0 <= left_s <= 30.0
    assert left_s == 0.0 or later_s < 30.0 + 1e-6


@pytest.mark.parametrize("rule", [rule for rule in Rule if rule not in (Rule.REQUEST_TOO_LARGE, Rule.SUPERSEDED)])
@pytest.mark.parametrize("found", [load(), load(queued_s=12.0), gone()])
def test_the_larger_delay_wins(rule: Rule, found: Load) -> None:
    """A refusal names our own delay or what the engine asked for, whichever is longer."""
    own_s = retry_after_s(rule, found)
    assert own_s is not None
    for asked_s in (0.0, 0.5, 29.0):
        assert retry_after_s(rule, msgspec.structs.replace(found, asked_delay_s=asked_s)) == max(own_s, asked_s)


def test_what_can_never_fit_gets_no_delay() -> None:
    """However long an engine wants callers to stay away, none of them is told to come back with what never fits."""
    assert retry_after_s(Rule.REQUEST_TOO_LARGE, load(asked_delay_s=20.0)) is None


def full_pool() -> Controller:
    """One slot, taken, and nobody may wait."""
    controller = pool(queue_len=0)
    assert isinstance(controller.submit(patient("running"), 0.0), Admit)
    return controller


def refused_after_s(controller: Controller, work_id: str, now_s: float) -> float | None:
    decision = controller.submit(patient(work_id), now_s)
    assert isinstance(decision, Reject), decision
    assert decision.reason == Reason(Rule.QUEUE_FULL, 0, 0, "requests")
    return decision.retry_after_s


def test_a_pool_passes_on_what_its_engine_asks_for() -> None:
    """From the engine's refusal on, refusals of its pool name at least its delay, until that has passed."""
    controller = full_pool()
    assert refused_after_s(controller, "a", 0.0) == 1.0
    controller.settle(outcome("elsewhere", ending=Ending.ENGINE_REFUSED, status=503, retry_after_s=12.0), 1.0)
    assert refused_after_s(controller, "b", 1.0) == 12.0
    assert refused_after_s(controller, "c", 8.2) == 5.0
    assert refused_after_s(controller, "d", 13.0) == 1.0


def test_a_repeated_outcome_does_not_prolong_it() -> None:
    """The same access-log entry, seen twice, starts no second delay."""
    controller = full_pool()
    refusal = outcome("elsewhere", ending=Ending.ENGINE_REFUSED, status=429, retry_after_s=10.0)
    assert controller.settle(refusal, 0.0)
    assert not controller.settle(refusal, 9.0)
    assert refused_after_s(controller, "a", 9.5) == 1.0
