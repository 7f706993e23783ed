"""What one request asks of an engine."""

from math import isfinite
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.admission.cost import price
from tidegate.admission.limits import Limits
from tidegate.admission.work import Work

LIMITS = Limits(slots=256, kv_tokens=100_000, batched_tokens=2000)
LONG: dict[str, Any] = {"log_mean": 20.0, "log_sigma": 0.0}  # so that the cap is the expected length


def test_the_formula() -> None:
    """Prefill and half a step make the first token; the scarcest resource makes the cost."""
    asked = price(Work(id="w", prompt_tokens=1000, completion_tokens_max=320, **LONG), LIMITS, tau_s=0.05)
    assert (asked.sequences, asked.kv_tokens) == (1, 1320)
    assert asked.ttft_s == pytest.approx(1000 * 0.12 / 2000 + 0.06)
    assert asked.answer_s == pytest.approx(16.0)
    assert asked.bottleneck_s == pytest.approx(0.06 + 320 * 0.02 / 32)


def test_each_resource_can_be_the_bottleneck() -> None:
    """Few slots, or a small KV cache, raise the cost of the same request."""
    work = Work(id="w", prompt_tokens=1000, completion_tokens_max=320, **LONG)
    assert price(work, Limits(slots=4, batched_tokens=2000), tau_s=0.05).bottleneck_s == pytest.approx(16 / 4)
    small_kv = Limits(kv_tokens=2000, batched_tokens=2000)
    assert price(work, small_kv, tau_s=0.05).bottleneck_s == pytest.approx(1160 * 16 / 2000)


def test_a_booking_is_at_most_one_engine() -> None:
    """However large a request, it books one whole engine and no more, so that it fits when it is alone."""
    asked = price(Work(id="w", prompt_tokens=10**400, sequences=10**9), LIMITS, tau_s=0.05)
    assert (asked.sequences, asked.kv_tokens) == (256, 100_000)


def test_sequences_decode_side_by_side() -> None:
    """Four sequences of 80 tokens take a quarter of the time of one of 320."""
    work = Work(id="w", sequences=4, completion_tokens_max=320, **LONG)
    assert price(work, LIMITS, tau_s=0.05).answer_s == pytest.approx(4.0)


@given(
    prompt=st.integers(-(10**30), 10**400),
    cap=st.none() | st.integers(-5, 10**400),
    mean=st.floats(),
    sigma=st.floats(),
    sequences=st.integers(-3, 10**400),
)
def test_any_request_has_a_price(prompt: int, cap: int | None, mean: float, sigma: float, sequences: int) -> None:
    """Nonsensical lengths give a finite price that books at least one slot and one token."""
    work = Work(
        id="w",
        prompt_tokens=prompt,
        completion_tokens_max=cap,
        log_mean=mean,
        log_sigma=sigma,
        sequences=sequences,
    )
    asked = price(work, LIMITS, tau_s=0.05)
    assert 1 <= asked.sequences <= 256
    assert 1 <= asked.kv_tokens <= 100_000
    assert all(isfinite(seconds) and seconds >= 0.0 for seconds in (asked.ttft_s, asked.answer_s, asked.bottleneck_s))
