"""What an engine can do with a mix of requests.

    capacity = requests finished / seconds, with a queue that is never empty

It is measured on the engine model in virtual time, which takes milliseconds, because prefill, KV blocks and slots share
one engine and no formula says which of them binds. Requests are fed so that some always wait and nobody ever leaves.
"""

from tidegate.sim.arrivals import Arrival, TenantLoad, arrivals_of
from tidegate.sim.engine_model import EngineModel
from tidegate.sim.profiles import EngineProfile

REQUESTS = 400
STEPS_MAX = 200_000


def capacity_per_s(profile: EngineProfile, mix: tuple[TenantLoad, ...], *, seed: int = 0) -> float:
    """Requests a second that the engine finishes at most, with tenants in the proportion of their rates.

    Raises:
        ValueError: the mix holds a request that the engine can never hold, or none at all.
    """
    requests = _requests(mix, seed)
    if not requests:
        raise ValueError("a mix without requests has no capacity")
    engine = EngineModel(profile)
    for index, request in enumerate(requests):
        engine.submit(str(index), request.prompt_tokens, request.completion_tokens, 0.0)
    # The tail, when slots run empty for want of requests, is no sign of what the engine can do: stop with the queue.
    now_s = 0.0
    for _ in range(STEPS_MAX):
        step_end_s = engine.next_step_at_s()
        if step_end_s is None or engine.waiting == 0:
            break
        now_s = step_end_s
        engine.advance(now_s)
    return (engine.counters.finished + engine.running / 2.0) / now_s


def _requests(mix: tuple[TenantLoad, ...], seed: int) -> tuple[Arrival, ...]:
    rate_per_s = sum(tenant.rate_per_s for tenant in mix)
    return arrivals_of(mix, duration_s=REQUESTS / rate_per_s, seed=seed) if rate_per_s > 0.0 else ()
