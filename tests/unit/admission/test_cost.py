"""What one request asks of an engine."""

from math import isfinite
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.admission.cost import Cost, price
from tidegate.admission.engine_book import EngineBook
from tidegate.admission.limits import Limits
from tidegate.admission.step_model import PRIOR
from tidegate.admission.work import Work

LIMITS = Limits(slots=256, kv_tokens=100_000, batched_tokens=2000)
LONG: dict[str, Any] = {"log_mean": 20.0, "log_sigma": 0.0}  # so that the cap is the expected length
TAU_S = 0.05


def priced(work: Work, limits: Limits = LIMITS, *, busy: int = 0, tau_s: float = TAU_S) -> Cost:
    """The cost of `work` in an engine of which nothing is learned, beside so many sequences that decode."""
    book = EngineBook(limits, now_s=0.0)
    for i in range(busy):
        book.adopt(str(i), sequences=1, kv_tokens=100, now_s=0.0)
    return price(work, book, log_mean=work.log_mean, log_sigma=work.log_sigma, tau_s=tau_s)


def test_the_formula() -> None:
    """Prefill with its attention and a 32nd of each step: what 1000 prompt tokens and 320 more take of the compute."""
    asked = priced(Work(id="w", prompt_tokens=1000, completion_tokens_max=320, **LONG))
    assert (asked.prompt_tokens, asked.completion_tokens) == (1000.0, 320.0)
    assert (asked.sequences, asked.kv_tokens) == (1, 1320)
    assert asked.answer_s == pytest.approx(16.0)
    chunk_s = PRIOR.base_s + 2000 * PRIOR.token_s
    prefill_s = 1000 * chunk_s / 2000 + PRIOR.attention_s * 1000**2 / 2
    assert asked.bottleneck_s == pytest.approx(prefill_s + 320 * PRIOR.base_s / 32)


def test_sequences_that_decode_share_the_steps() -> None:
    """Beside 64 sequences an answer takes a 64th of each step, which is longer for them, and its prefill is slower."""
    roomy = Limits(slots=256, kv_tokens=1_000_000, batched_tokens=2000)
    asked = priced(Work(id="w", prompt_tokens=1000, completion_tokens_max=320, **LONG), roomy, busy=64)
    step_s = PRIOR.base_s + 64 * PRIOR.token_s + 6400 * PRIOR.kv_token_s
    chunk_s = step_s + 1936 * PRIOR.token_s
    prefill_s = 1000 * chunk_s / 1936 + PRIOR.attention_s * 1000**2 / 2
    assert asked.bottleneck_s == pytest.approx(prefill_s + 320 * step_s / 64)


def test_each_resource_can_be_the_bottleneck() -> None:
    """Few slots, or a small KV cache, raise the cost of the same request."""
    work = Work(id="w", prompt_tokens=1000, completion_tokens_max=320, **LONG)
    assert priced(work, Limits(slots=4, batched_tokens=2000)).bottleneck_s == pytest.approx(16 / 4)
    small_kv = Limits(kv_tokens=2000, batched_tokens=2000)
    assert priced(work, small_kv).bottleneck_s == pytest.approx(1160 * 16 / 2000)


def test_the_cap_cuts_what_is_expected() -> None:
    """An answer that may not be longer than its cap is not expected to be; without a cap its mean is."""
    free, capped = (priced(Work(id="w", log_mean=6.0, log_sigma=0.5, completion_tokens_max=cap)) for cap in (None, 100))
    assert free.completion_tokens == pytest.approx(457.14, rel=1e-3)  # exp(6 + 0.5 * 0.5 / 2)
    assert 90.0 < capped.completion_tokens <= 100.0
    assert (free.completion_tokens_max, capped.completion_tokens_max) == (float("inf"), 100.0)


def test_the_estimate_before_calibration_is_kept() -> None:
    """What was predicted stays beside what was priced: only of the former can the calibration learn."""
    work = Work(id="w", log_mean=4.0, log_sigma=0.7)
    asked = price(work, EngineBook(LIMITS, now_s=0.0), log_mean=5.0, log_sigma=0.9, tau_s=TAU_S)
    assert (asked.estimate, asked.log_mean, asked.log_sigma) == ((4.0, 0.7), 5.0, 0.9)


def test_a_booking_is_at_most_one_engine() -> None:
    """However large a request, it books one whole engine and no more, so that it fits when it is alone."""
    asked = priced(Work(id="w", prompt_tokens=10**400, sequences=10**9))
    assert (asked.sequences, asked.kv_tokens) == (256, 100_000)


def test_sequences_decode_side_by_side() -> None:
    """Four sequences of 80 tokens take a quarter of the time of one of 320, and hold no more slots for it."""
    work = Work(id="w", sequences=4, completion_tokens_max=320, **LONG)
    assert priced(work).answer_s == pytest.approx(4.0)
    few_slots = Limits(slots=4, batched_tokens=2000)
    assert priced(work, few_slots).bottleneck_s == pytest.approx(320 * TAU_S / 4)


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
    asked = priced(work)
    assert 1 <= asked.sequences <= 256
    assert 1 <= asked.kv_tokens <= 100_000
    figures = (asked.prompt_tokens, asked.completion_tokens, asked.answer_s, asked.bottleneck_s)
    assert all(isfinite(figure) and figure >= 0.0 for figure in figures)
