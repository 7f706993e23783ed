"""How long a request may wait, and what its client's headers say about it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.admission.deadline import client_timeout, hold_s, patience_s
from tidegate.admission.limits import Limits, Mode
from tidegate.admission.queues.orders import Order
from tidegate.admission.work import Work

from .builders import patient

HEADERS = (
    "x-stainless-read-timeout",
    "x-stainless-timeout",
    "x-request-timeout",
    "x-envoy-upstream-rq-timeout-ms",
    "grpc-timeout",
)


BUSY_S = 1e6
"""So much queued work that nothing is added to a budget."""


def hold(work: Work, mode: Mode, *, ttft_s: float = 0.0, answer_s: float = 0.0, pressure_s: float = BUSY_S) -> float:
    return hold_s(work, mode, ttft_s=ttft_s, answer_s=answer_s, pressure_s=pressure_s)


@pytest.mark.parametrize(
    ("mode", "facts", "longest_s"),
    [
        (Mode.HYBRID, {"ttft_budget_s": 2.0, "client_timeout_s": 60.0, "hold_s_max": 9.0}, 1.8),
        (Mode.HYBRID, {"ttft_budget_s": 9.0, "client_timeout_s": 2.0, "hold_s_max": 9.0}, 1.4),
        (Mode.HYBRID, {"ttft_budget_s": 9.0, "client_timeout_s": 9.0, "hold_s_max": 0.15}, 0.15),
        (Mode.ADMISSION_FIRST, {"client_timeout_s": 60.0, "hold_s_max": 9.0}, 0.3),
        (Mode.ADMISSION_FIRST, {"client_timeout_s": 0.1, "hold_s_max": 9.0}, 0.07),
        (Mode.BACKPRESSURE_FIRST, {"ttft_budget_s": 0.1, "client_timeout_s": 10.0, "hold_s_max": 9.0}, 7.0),
        (Mode.BACKPRESSURE_FIRST, {"client_timeout_s": 10.0, "hold_s_max": 0.0}, 0.0),
    ],
)
def test_hold_by_mode(mode: Mode, facts: dict[str, Any], longest_s: float) -> None:
    """The hold is the least of what the mode, the client's timeout and the gateway allow."""
    assert hold(patient(**facts), mode) == pytest.approx(longest_s)


@pytest.mark.parametrize(
    ("pressure_s", "late_s"),
    [(0.0, 2.6), (0.25, 2.4), (0.5, 2.2), (1.0, 1.8), (1.1, 1.8), (50.0, 1.8)],
)
def test_where_nobody_waits_a_first_token_may_be_late(pressure_s: float, late_s: float) -> None:
    """Hold and prefill may take 1.3 budgets in an empty queue, less by 0.8 of what the queue takes to be served, and
    never less than 0.9 budgets; the hold alone may take no more than those 0.9.
    """
    work = patient(ttft_budget_s=2.0)
    for ttft_s in (1.0, 1.5):
        assert hold(work, Mode.HYBRID, ttft_s=ttft_s, pressure_s=pressure_s) == pytest.approx(late_s - ttft_s)
    assert hold(work, Mode.HYBRID, ttft_s=0.0, pressure_s=pressure_s) == pytest.approx(1.8)


@pytest.mark.parametrize("mode", [Mode.ADMISSION_FIRST, Mode.BACKPRESSURE_FIRST])
def test_only_hybrid_holds_depend_on_the_queue(mode: Mode) -> None:
    """What the other modes allow is the same in an empty and in a full queue."""
    work = patient(ttft_budget_s=2.0, client_timeout_s=60.0)
    assert hold(work, mode, pressure_s=0.0) == hold(work, mode, pressure_s=BUSY_S) > 0.0


def test_its_own_prefill_shortens_a_hybrid_hold() -> None:
    """Nine tenths of the budget cover the wait and the prefill; a prefill longer than that leaves no time to wait."""
    work = patient(ttft_budget_s=2.0)
    assert hold(work, Mode.HYBRID, ttft_s=0.5) == pytest.approx(1.3)
    assert hold(work, Mode.HYBRID, ttft_s=1.81) == 0.0
    assert hold(work, Mode.HYBRID, ttft_s=2.59, pressure_s=0.0) == pytest.approx(0.01)
    assert hold(work, Mode.HYBRID, ttft_s=2.61, pressure_s=0.0) == 0.0


@pytest.mark.parametrize("mode", [Mode.ADMISSION_FIRST, Mode.BACKPRESSURE_FIRST])
def test_a_prefill_of_any_length_may_wait_in_the_other_modes(mode: Mode) -> None:
    """Outside hybrid mode the budget says nothing about the hold, and a long prefill does not end it."""
    assert hold(patient(ttft_budget_s=2.0), mode, ttft_s=5.0) > 0.0


@pytest.mark.parametrize("mode", Mode)
def test_a_whole_answer_shortens_the_hold(mode: Mode) -> None:
    """A client that waits for the whole answer can be held only for what its timeout leaves beside it."""
    work = patient(stream=False, client_timeout_s=10.0)
    assert hold(work, mode, ttft_s=1.0, answer_s=8.9) == pytest.approx(0.1)
    assert hold(work, mode, ttft_s=1.0, answer_s=9.1) == 0.0
    assert hold(patient(client_timeout_s=10.0), mode, ttft_s=1.0, answer_s=9.1) > 0.1


def test_a_hold_too_short_for_any_timer_is_none() -> None:
    """Under a millisecond a hold would be over before it began."""
    assert hold(patient(hold_s_max=0.0009), Mode.HYBRID) == 0.0
    assert hold(patient(hold_s_max=0.001), Mode.HYBRID) == 0.001


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("pressure_s", [0.0, BUSY_S])
def test_nonsense_never_gives_a_hold(mode: Mode, pressure_s: float) -> None:
    """A negative timeout or hold leaves no time to wait, and no more does a negative budget where it counts."""
    names = ["client_timeout_s", "hold_s_max"] + ["ttft_budget_s"] * (mode is Mode.HYBRID)
    for name in names:
        assert hold(patient(**{name: -1.0}), mode, pressure_s=pressure_s) == 0.0


@pytest.mark.parametrize(
    ("mode", "order", "budget_s", "timeout_s", "patience"),
    [
        (Mode.HYBRID, Order.COST_DEADLINE, 2.0, 60.0, 4.5),  # 2.25 budgets
        (Mode.HYBRID, Order.COST_DEADLINE, 2.0, 6.0, 3.0),  # half the timeout
        (Mode.HYBRID, Order.COST_DEADLINE, 2.0, 3.0, 2.0),  # the budget, which half the timeout does not cover
        (Mode.HYBRID, Order.COST_DEADLINE, 2.0, 2.0, 1.4),  # 0.7 of the timeout, which the budget exceeds
        (Mode.HYBRID, Order.SHORTEST, 2.0, 60.0, 4.5),
        (Mode.HYBRID, Order.FIFO, 2.0, 60.0, 1.0),  # half the budget
        (Mode.HYBRID, Order.FIFO, 2.0, 1.0, 0.5),  # half the timeout
        (Mode.ADMISSION_FIRST, Order.COST_DEADLINE, 2.0, 60.0, 4.5),
        (Mode.ADMISSION_FIRST, Order.FIFO, 2.0, 60.0, 1.0),
        (Mode.BACKPRESSURE_FIRST, Order.COST_DEADLINE, 2.0, 60.0, 30.0),
        (Mode.BACKPRESSURE_FIRST, Order.FIFO, 2.0, 60.0, 30.0),
    ],
)
def test_patience(mode: Mode, order: Order, budget_s: float, timeout_s: float, patience: float) -> None:
    """The longest predicted time to a first token follows from the mode, the order, the budget and the timeout."""
    work = patient(ttft_budget_s=budget_s, client_timeout_s=timeout_s)
    assert patience_s(work, Limits(mode=mode, order=order)) == pytest.approx(patience)


@pytest.mark.parametrize(
    ("headers", "timeout_s"),
    [
        ({}, None),
        ({"x-stainless-read-timeout": "600"}, 600.0),
        ({"x-stainless-timeout": " 30 "}, 30.0),
        ({"x-request-timeout": "2.5"}, 2.5),
        ({"x-envoy-upstream-rq-timeout-ms": "1500"}, 1.5),
        ({"grpc-timeout": "10S"}, 10.0),
        ({"grpc-timeout": "500m"}, 0.5),
        ({"grpc-timeout": "2M"}, 120.0),
        ({"grpc-timeout": "250000u"}, 0.25),
        ({"x-stainless-read-timeout": "600", "grpc-timeout": "1S"}, 1.0),
    ],
)
def test_client_timeouts(headers: dict[str, str], timeout_s: float | None) -> None:
    """Each header is read in its own unit; the shortest timeout counts."""
    said = client_timeout(headers)
    assert said.timeout_s == timeout_s
    assert said.ignored == 0


@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.parametrize(
    "text",
    [
        "0",
        "-1",
        "1e99",
        "NaN",
        "inf",
        "",
        " ",
        "500ms",
        "5,6",
        "5, 6",
        "9" * 10_240,
        "٣٠",
        "³",
        "0x10",
        "+5",
        "1_0",
        "5\n",
    ],
)
def test_garbage_is_ignored_and_counted(name: str, text: str) -> None:
    """A value that is no positive number in the header's unit is as good as absent, but counted."""
    said = client_timeout({name: text})
    assert said.timeout_s is None
    assert said.ignored == 1


@pytest.mark.parametrize(
    ("headers", "timeout_s"),
    [
        ({"x-request-timeout": "9223372036854775808"}, 3600.0),
        ({"x-envoy-upstream-rq-timeout-ms": "9223372036854775808"}, 3600.0),
        ({"x-stainless-timeout": "0.001"}, 0.05),
        ({"grpc-timeout": "1n"}, 0.05),
        ({"grpc-timeout": "99999999H"}, 3600.0),
    ],
)
def test_extremes_are_clamped_and_counted(headers: dict[str, str], timeout_s: float) -> None:
    """A timeout out of all proportion is brought within 50 ms and an hour."""
    said = client_timeout(headers)
    assert said.timeout_s == timeout_s
    assert said.ignored == 1


def test_one_bad_header_leaves_the_others() -> None:
    """Garbage in one header does not hide what another says."""
    said = client_timeout({"x-stainless-read-timeout": "soon", "grpc-timeout": "3S"})
    assert (said.timeout_s, said.ignored) == (3.0, 1)


@given(st.dictionaries(st.sampled_from(HEADERS), st.text(max_size=40)))
def test_any_text_is_survived(headers: dict[str, str]) -> None:
    """Whatever the texts, the answer is None or within the bounds."""
    timeout_s = client_timeout(headers).timeout_s
    assert timeout_s is None or 0.05 <= timeout_s <= 3600.0
