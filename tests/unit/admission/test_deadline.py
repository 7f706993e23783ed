"""How long a request may wait, and what its client's headers say about it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.admission.deadline import client_timeout, hold_s, patience_s
from tidegate.admission.limits import Mode

from .builders import cost, patient

HEADERS = (
    "x-stainless-read-timeout",
    "x-stainless-timeout",
    "x-request-timeout",
    "x-envoy-upstream-rq-timeout-ms",
    "grpc-timeout",
)


@pytest.mark.parametrize(
    ("mode", "facts", "hold"),
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
def test_hold_by_mode(mode: Mode, facts: dict[str, Any], hold: float) -> None:
    """The hold is the least of what the mode, the client's timeout and the gateway allow."""
    assert hold_s(patient(**facts), mode, cost(ttft_s=0.0)) == pytest.approx(hold)


def test_its_own_prefill_shortens_a_hybrid_hold() -> None:
    """Nine tenths of the budget cover the wait and the prefill; a prefill longer than that leaves no time to wait."""
    work = patient(ttft_budget_s=2.0)
    assert hold_s(work, Mode.HYBRID, cost(ttft_s=0.5)) == pytest.approx(1.3)
    assert hold_s(work, Mode.HYBRID, cost(ttft_s=5.0)) == 0.0


def test_a_whole_answer_shortens_the_hold() -> None:
    """A client that waits for the whole answer can be held only for what its timeout leaves beside it."""
    work = patient(stream=False, client_timeout_s=10.0)
    assert hold_s(work, Mode.BACKPRESSURE_FIRST, cost(ttft_s=1.0, answer_s=6.0)) == pytest.approx(3.0)


def test_nonsense_never_gives_a_hold() -> None:
    """A negative budget, timeout or hold leaves no time to wait."""
    for name in ("ttft_budget_s", "client_timeout_s", "hold_s_max"):
        assert hold_s(patient(**{name: -1.0}), Mode.HYBRID, cost()) == 0.0


def test_patience_is_half() -> None:
    """Half the budget or half the timeout, whichever is less; with patience for backpressure, half the timeout."""
    work = patient(ttft_budget_s=2.0, client_timeout_s=60.0)
    assert patience_s(work, Mode.HYBRID) == 1.0
    assert patience_s(work, Mode.ADMISSION_FIRST) == 1.0
    assert patience_s(work, Mode.BACKPRESSURE_FIRST) == 30.0


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
