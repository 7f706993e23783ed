"""From a trace to requests."""

from math import exp, log
from statistics import fmean, pstdev

import numpy as np
import pytest
from bench.goodput.request import Request
from bench.goodput.traces import Trace
from bench.goodput.workload import Spike, Workload, prefill_s, requests_of

from tests.simulation.goodput_scenes import PROFILE, made_up_trace
from tidegate.sim.profiles import EngineProfile

TRACE = made_up_trace()


def made(workload: Workload, profile: EngineProfile = PROFILE, seed: int = 0, *, exact: bool = False) -> list[Request]:
    return requests_of(workload, profile, seed, exact=exact, trace=TRACE)


def test_the_rate_is_the_load() -> None:
    """Timestamps are scaled so that the mean rate is the load times load 1 times the engines."""
    requests = made(Workload(trace="chat", load=0.5, engines=2))
    assert len(requests) / (60 + 180 + 20) == pytest.approx(8.49, rel=0.01)
    assert requests[0].at_s == 0.0
    assert requests[-1].at_s == pytest.approx(260.0)


def test_the_gaps_are_the_traces() -> None:
    """Scaling keeps the proportions of the gaps, and consecutive requests stay so."""
    bursty = Trace(
        at_s=np.repeat(np.arange(1_000.0), 4) * 7.0,
        prompt_tokens=np.arange(1, 4_001),
        completion_tokens=np.full(4_000, 10),
    )
    requests = requests_of(Workload(trace="chat", load=1.0), PROFILE, 3, trace=bursty)
    prompts = [each.prompt_tokens for each in requests]
    assert prompts == list(range(prompts[0], prompts[0] + len(prompts)))
    gaps = np.diff([each.at_s for each in requests])
    assert len(set(np.round(gaps[gaps > 1e-9], 6))) == 1


def test_a_seed_is_a_window_and_its_estimates() -> None:
    """The same seed gives the same requests, another one others."""
    workload = Workload(trace="chat", load=0.5)
    assert made(workload, seed=1) == made(workload, seed=1)
    assert made(workload, seed=1) != made(workload, seed=2)


def test_estimates() -> None:
    """Errors of the estimates are log-normal of the stated width, shifted by the bias; exact ones have none."""
    fair = [each.log_mean - log(each.completion_tokens) for each in made(Workload(trace="chat", load=1.0))]
    assert abs(fmean(fair)) < 0.06
    assert pstdev(fair) == pytest.approx(0.6, rel=0.1)
    biased = made(Workload(trace="chat", load=1.0, bias=5.0))
    assert fmean(each.log_mean - log(each.completion_tokens) for each in biased) == pytest.approx(log(5.0), abs=0.06)
    for each in made(Workload(trace="chat", load=1.0), exact=True):
        assert exp(each.log_mean) == pytest.approx(each.completion_tokens)
        assert each.log_sigma <= 0.01


def test_budgets_follow_the_prompt() -> None:
    """The budget of the first token is two seconds and three times the prefill alone, chunk by chunk."""
    each = max(made(Workload(trace="chat", load=0.5)), key=lambda each: each.prompt_tokens)
    assert each.ttft_budget_s == pytest.approx(2.0 + 3.0 * prefill_s(PROFILE, each.prompt_tokens))
    whole_s, half_s = prefill_s(PROFILE, 2_048), prefill_s(PROFILE, 1_024)
    assert whole_s == pytest.approx(2 * half_s + PROFILE.cost.attention_s * 1_024 * 1_024)


def test_a_slower_engine_is_the_same_problem_in_another_unit() -> None:
    """Rates go down and every time of the client goes up by the same factor."""
    slow = made(Workload(trace="chat", load=0.5), PROFILE.slowed(4.0))
    plain = made(Workload(trace="chat", load=0.5))
    assert len(slow) == pytest.approx(len(plain) / 4, abs=1)
    assert slow[0].first_timeout_s == 4 * plain[0].first_timeout_s
    assert slow[0].tpot_target_s == pytest.approx(4 * plain[0].tpot_target_s)
    assert slow[0].ttft_budget_s == pytest.approx(8.0 + 3.0 * prefill_s(PROFILE.slowed(4.0), slow[0].prompt_tokens))


def test_poisson_arrivals_and_spikes() -> None:
    """Independent arrivals keep the rate, and a spike multiplies it while it lasts."""
    workload = Workload(trace="chat", load=0.8, poisson=True, spikes=(Spike(at_s=100.0, for_s=20.0, factor=4.0),))
    at_s = np.array([each.at_s for seed in range(8) for each in made(workload, seed=seed)])
    spike = np.count_nonzero((at_s >= 100.0) & (at_s < 120.0)) / 20.0 / 8
    before = np.count_nonzero(at_s < 100.0) / 100.0 / 8
    assert before == pytest.approx(0.8 * 8.49, rel=0.1)
    assert spike == pytest.approx(4 * 0.8 * 8.49, rel=0.1)


def test_a_flood_adds_to_the_others() -> None:
    """The flood's share of the requests is its share of the load; the rest is dealt evenly."""
    requests = made(Workload(trace="chat", load=0.4, tenants=4, flood=0.8))
    flood = sum(each.tenant == "flood" for each in requests) / len(requests)
    assert flood == pytest.approx(2 / 3, abs=0.05)
    assert {each.tenant for each in requests} == {"flood", "tenant0", "tenant1", "tenant2", "tenant3"}


def test_too_short_a_trace_is_said() -> None:
    """A workload that needs more requests than the trace has is refused."""
    with pytest.raises(ValueError, match="are needed"):
        made(Workload(trace="chat", load=3.0))
