"""From a trace to requests: a window of it, brought to a rate, with estimates and budgets.

    budget of the first token   B = 2 s + 3 x the time its prefill takes in an engine of its own
    estimate of the answer      log mean = ln(true tokens x bias) + sigma z,   z standard normal

A seed chooses the window, the estimates and the tenants, so that every policy meets the same requests. On an engine
that is `slowed`, all of the client's times are too: the same problem in another unit of time.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import log

import numpy as np
from numpy.typing import NDArray

from bench.goodput.request import Request
from bench.goodput.traces import TRACES, Trace, TraceSpec, read_trace
from tidegate.sim.profiles import PROFILES, EngineProfile

BUDGET_S, BUDGET_PREFILLS = 2.0, 3.0
FIRST_TIMEOUT_S = 10.0
MAX_TOKENS = 16_384
EXACT_SIGMA = 0.01
DECODING_TYPICAL = 128  # sequences that share a step, in the cost of an answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Spike:
    """From `at_s` for `for_s` seconds the rate is `factor` times the workload's."""

    at_s: float
    for_s: float
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What arrives.

    Attributes:
        trace, load: which trace, at how many times its load 1 for each engine.
        engines: the rate is so many times that of one.
        poisson: independent arrivals of requests from anywhere in the trace; else consecutive ones, their gaps scaled
            to the rate.
        warmup_s, window_s: before the window that counts and in it; None: the trace's own.
        cooldown_s: requests that follow the window, so that its last ones run under load too.
        bias, log_sigma: of the estimates.
        flood: load of one more tenant, from the same trace.
        tenants: how many share `load` evenly.
        spikes: changes of the rate; they need `poisson`.
    """

    trace: str
    load: float
    engines: int = 1
    poisson: bool = False
    warmup_s: float | None = None
    window_s: float | None = None
    cooldown_s: float = 20.0
    bias: float = 1.0
    log_sigma: float = 0.6
    tenants: int = 1
    flood: float = 0.0
    spikes: tuple[Spike, ...] = ()

    @property
    def spec(self) -> TraceSpec:
        """The trace's."""
        return TRACES[self.trace]

    @property
    def window(self) -> tuple[float, float]:
        """From when to when an arrival counts, in seconds."""
        start_s = self.spec.warmup_s if self.warmup_s is None else self.warmup_s
        return start_s, start_s + (self.spec.window_s if self.window_s is None else self.window_s)

    @property
    def until_s(self) -> float:
        """When the last request comes."""
        return self.window[1] + self.cooldown_s


def requests_of(
    workload: Workload, profile: EngineProfile, seed: int, *, exact: bool = False, trace: Trace | None = None
) -> list[Request]:
    """The requests in order of time; `profile` is the true engine. `exact`: the estimates are the truth.

    Raises:
        ValueError: the trace (None: the workload's own, from its file) has too few requests.
    """
    generator = np.random.default_rng([seed, sum(map(ord, workload.trace))])
    slowed = _slowed(profile)
    if trace is None:
        trace = read_trace(workload.trace)
    per_s = workload.spec.load_1_per_s * (workload.load + workload.flood) * workload.engines / slowed
    at_s = _poisson_s(workload, per_s, generator) if workload.poisson else None
    count = round(per_s * workload.until_s) if at_s is None else len(at_s)
    if count > len(trace):
        raise ValueError(f"{workload.trace} has {len(trace)} requests, {count} are needed")
    if at_s is not None:
        rows = generator.permutation(len(trace))[:count]
    else:
        rows = np.arange(count) + int(generator.integers(0, len(trace) - count + 1))
        at_s = _compressed_s(trace.at_s[rows], workload.until_s)
    requests = list(_requests(workload, profile, trace.rows(rows), at_s, slowed, generator))
    if exact:
        return [replace(each, log_mean=log(each.completion_tokens), log_sigma=EXACT_SIGMA) for each in requests]
    return requests


def _poisson_s(workload: Workload, per_s: float, generator: np.random.Generator) -> NDArray[np.float64]:
    """Arrivals at a rate that the spikes change: exponential gaps between expected counts, mapped back to time."""
    edges_s, expected = _expected(workload, per_s)
    count = int(expected[-1] + 10 * expected[-1] ** 0.5 + 10)
    drawn = np.cumsum(generator.exponential(size=count))
    mapped: NDArray[np.float64] = np.interp(drawn[drawn < expected[-1]], expected, edges_s)
    return mapped


def _expected(workload: Workload, per_s: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times at which the rate changes, and the arrivals expected until each."""
    edges = {0.0, workload.until_s}
    edges.update(edge for spike in workload.spikes for edge in (spike.at_s, spike.at_s + spike.for_s))
    edges_s = np.array(sorted(edges))
    factors = np.ones(len(edges_s) - 1)
    for spike in workload.spikes:
        inside = (edges_s[:-1] >= spike.at_s) & (edges_s[:-1] < spike.at_s + spike.for_s)
        factors[inside] = spike.factor
    return edges_s, np.concatenate(([0.0], np.cumsum(np.diff(edges_s) * factors * per_s)))


def _compressed_s(at_s: NDArray[np.float64], until_s: float) -> NDArray[np.float64]:
    scaled: NDArray[np.float64] = (at_s - at_s[0]) * (until_s / max(at_s[-1] - at_s[0], 1e-9))
    return scaled


def _requests(
    workload: Workload,
    profile: EngineProfile,
    trace: Trace,
    at_s: NDArray[np.float64],
    slowed: float,
    generator: np.random.Generator,
) -> Iterable[Request]:
    spec = workload.spec
    noise = generator.standard_normal(len(at_s)) * workload.log_sigma
    tenants = _tenants(workload, len(at_s), generator)
    for index, arrives_s in enumerate(at_s.tolist()):
        prompt_tokens = int(trace.prompt_tokens[index])
        tokens = int(trace.completion_tokens[index])
        yield Request(
            index=index,
            at_s=arrives_s,
            tenant=tenants[index],
            prompt_tokens=prompt_tokens,
            completion_tokens=tokens,
            max_tokens=max(MAX_TOKENS, tokens),
            log_mean=log(tokens * workload.bias) + float(noise[index]),
            log_sigma=workload.log_sigma,
            ttft_budget_s=BUDGET_S * slowed + BUDGET_PREFILLS * prefill_s(profile, prompt_tokens),
            tpot_target_s=profile.tpot_target_s,
            first_timeout_s=FIRST_TIMEOUT_S * slowed,
            whole_timeout_s=spec.whole_timeout_s * slowed,
            cost_s=cost_s(profile, prompt_tokens, tokens),
        )


def _tenants(workload: Workload, count: int, generator: np.random.Generator) -> list[str]:
    """The flood's share of the requests is `flood`'s, the rest is dealt to the others."""
    share = workload.flood / (workload.load + workload.flood)
    floods = generator.random(count) < share
    others = generator.integers(0, workload.tenants, count)
    return [
        "flood" if flood else f"tenant{other}" for flood, other in zip(floods.tolist(), others.tolist(), strict=True)
    ]


@lru_cache(maxsize=65_536)
def prefill_s(profile: EngineProfile, prompt_tokens: int) -> float:
    """Seconds that a prompt takes in an engine that does nothing else."""
    total_s, before = 0.0, 0
    while before < prompt_tokens:
        chunk = min(profile.batched_tokens, prompt_tokens - before)
        total_s += profile.cost.seconds(chunk, 0, chunk * (before + chunk / 2))
        before += chunk
    return total_s


def cost_s(profile: EngineProfile, prompt_tokens: int, completion_tokens: int) -> float:
    """Engine seconds of a request: its prefill, and its share of the steps that decode it."""
    step_s = profile.cost.seconds(DECODING_TYPICAL, 0, 0.0)
    return prefill_s(profile, prompt_tokens) + completion_tokens * step_s / DECODING_TYPICAL


def _slowed(profile: EngineProfile) -> float:
    """How many times slower than the profile of its name."""
    return profile.cost.base_s / PROFILES[profile.name].cost.base_s
