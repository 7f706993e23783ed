"""What requests that end with their prompt hold of an engine, and that nothing is learned from their length."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.admission.limits import Limits
from tidegate.admission.prices import Prices
from tidegate.admission.prompt_demand import prompt_demand
from tidegate.admission.running_table import RunningTable
from tidegate.admission.work import Work

STATED = Limits(slots=256, kv_tokens=100_000, batched_tokens=2048)


@pytest.mark.parametrize(
    ("prompt_tokens", "inputs", "limits", "expected"),
    [
        (8, 1, STATED, (1, 8)),
        (0, 0, STATED, (1, 1)),
        (20 * 2048, 2048, STATED, (103, 40_960)),  # a step has room for 102.4 inputs of 20 tokens
        (300 * 64, 64, STATED, (7, 19_200)),
        (2048, 2048, STATED, (256, 2048)),  # no more than an engine has slots
        (2048, 2048, Limits(batched_tokens=2048), (2048, 2048)),  # which nobody has stated here
        (1_000_000, 2048, STATED, (5, 99_995)),  # as much as a cache holds, so that it is never too large
        (1_000_000, 2048, Limits(kv_tokens=3, batched_tokens=2048), (5, 1)),
        (1_000_000, 2048, Limits(batched_tokens=2048), (5, 1_000_000)),
    ],
)
def test_a_batch_holds_a_steps_worth(
    prompt_tokens: int, inputs: int, limits: Limits, expected: tuple[int, int]
) -> None:
    """As many slots as inputs find room in one step, and no more tokens than an engine has."""
    assert prompt_demand(prompt_tokens, inputs, limits) == expected


@given(st.integers(0, 2**31), st.integers(0, 2**20), st.integers(1, 100_000), st.integers(3, 10**9))
def test_it_always_fits(tokens: int, inputs: int, slots: int, kv_tokens: int) -> None:
    """Whatever is asked, one engine can hold what is booked for it, unless it can hold nothing at all."""
    limits = Limits(slots=slots, kv_tokens=kv_tokens, batched_tokens=2048)
    demand = prompt_demand(tokens, inputs, limits)
    assert 1 <= demand.sequences <= slots
    assert demand.prompt_tokens >= 1
    assert demand.prompt_tokens + demand.sequences <= max(kv_tokens, demand.sequences + 1)


def test_a_known_length_teaches_no_calibration() -> None:
    """Neither the answer nor the request while it runs; one of an estimated length teaches as before."""
    prices = Prices(0.0)
    before = prices.dump()
    for _ in range(50):
        prices.learn_length(Work(id="e", log_mean=0.0, log_sigma=0.0, completion_tokens_max=1), 1, 0.0)
    assert prices.dump() == before
    prices.learn_length(Work(id="c", log_mean=5.0, log_sigma=0.9), 100, 0.0)
    assert prices.dump() != before


def test_a_known_length_is_not_among_the_running_estimates() -> None:
    """What the calibration watches are answers whose length it may still learn something about."""
    table = RunningTable()
    for name, sigma in (("embedding", 0.0), ("chat", 0.9)):
        table.add(
            name,
            prompt_tokens=100.0,
            expected_tokens=1.0,
            log_mean=2.0,
            log_sigma=sigma,
            tokens_max=np.inf,
            sequences=1,
            estimate=(2.0, sigma),
        )
    means, sigmas, generated = table.estimates()
    assert (means.tolist(), sigmas.tolist(), generated.tolist()) == ([2.0], [0.9], [0.0])
