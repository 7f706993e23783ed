"""Load 1: the highest rate of Poisson arrivals at which 95 % of the requests are served within objective, uncontrolled.

It is found on the engine model in virtual time, by halving an interval, and takes about a second. Nobody leaves: at a
rate that is too high all later requests are late, which the share shows as well.
"""

from dataclasses import replace

from tidegate.sim.arrivals import Arrival, TenantLoad, arrivals_of
from tidegate.sim.engine_model import EngineModel
from tidegate.sim.profiles import EngineProfile
from tidegate.sim.report import Objective

ATTAINED = 0.95
REQUESTS = 3000
DOUBLINGS_MAX, HALVINGS = 20, 8
STEPS_MAX = 1_000_000


def load_1_per_s(profile: EngineProfile, mix: tuple[TenantLoad, ...], objective: Objective, *, seed: int = 0) -> float:
    """Requests a second of tenants in the proportion of their rates.

    Raises:
        ValueError: the mix is empty, or no rate up to a million a second is too high.
    """
    total_per_s = sum(tenant.rate_per_s for tenant in mix)
    if not total_per_s > 0.0:
        raise ValueError("a mix without requests has no capacity")

    def bears(per_s: float) -> bool:
        scaled = tuple(replace(each, rate_per_s=each.rate_per_s * per_s / total_per_s) for each in mix)
        arrivals = arrivals_of(scaled, duration_s=REQUESTS / per_s, seed=seed)
        return attained(profile, arrivals, objective) >= ATTAINED

    high = next((2.0**power for power in range(DOUBLINGS_MAX) if not bears(2.0**power)), None)
    if high is None:
        raise ValueError("the engine bears any rate")
    low = 0.0 if high == 1.0 else high / 2.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if bears(middle) else (low, middle)
    return low


def attained(profile: EngineProfile, arrivals: tuple[Arrival, ...], objective: Objective) -> float:
    """The share of the requests that the engine alone serves within objective; 1 of none."""
    engine = EngineModel(profile)
    first_s: dict[str, float] = {}
    good = coming = 0
    for _ in range(STEPS_MAX):
        step_s = engine.next_step_at_s()
        if coming < len(arrivals) and (step_s is None or arrivals[coming].at_s < step_s):
            arrival = arrivals[coming]
            engine.submit(str(coming), arrival.prompt_tokens, arrival.completion_tokens, arrival.at_s)
            coming += 1
            continue
        if step_s is None:
            break
        for event in engine.advance(step_s):
            first_s.update((name, event.end_s) for name in event.first_tokens)
            for name in event.finished:
                good += _good(arrivals[int(name)], first_s.pop(name), event.end_s, objective)
    return good / len(arrivals) if arrivals else 1.0


def _good(arrival: Arrival, first_s: float, end_s: float, objective: Objective) -> bool:
    tpot_s = (end_s - first_s) / max(arrival.completion_tokens - 1, 1)
    return first_s - arrival.at_s <= objective.ttft_s and tpot_s <= objective.tpot_s
