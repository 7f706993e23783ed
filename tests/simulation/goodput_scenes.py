"""A made-up trace, requests and policies for the tests of the goodput bench; no recorded data."""

import numpy as np
from bench.goodput.policies.baseline import Baseline
from bench.goodput.policy import Verdict
from bench.goodput.request import Request
from bench.goodput.simulation import Fault, Simulation
from bench.goodput.traces import Trace
from bench.goodput.workload import prefill_s

from tidegate.sim.engine_model import EngineModel
from tidegate.sim.profiles import PROFILES

PROFILE = PROFILES["llama-70b-4xh100"]
POOL = {"engines": [{"name": "engine0", "slots": 256, "kv_tokens": 412_000, "batched_tokens": 1024}]}


def made_up_trace(requests: int = 4_000) -> Trace:
    """One request a second, prompts and answers log-normal."""
    generator = np.random.default_rng(1)
    return Trace(
        at_s=np.arange(requests, dtype=np.float64),
        prompt_tokens=np.clip(generator.lognormal(6.5, 1.0, requests), 1, 16_000).astype(np.int64),
        completion_tokens=np.clip(generator.lognormal(4.5, 0.8, requests), 1, 2_000).astype(np.int64),
    )


def request(at_s: float = 0.0, *, index: int = 0, prompt_tokens: int = 1_000, completion_tokens: int = 100) -> Request:
    """A request with the bench's own budgets and timeouts."""
    return Request(
        index=index,
        at_s=at_s,
        tenant="",
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        max_tokens=16_384,
        log_mean=4.6,
        log_sigma=0.6,
        ttft_budget_s=2.0 + 3.0 * prefill_s(PROFILE, prompt_tokens),
        tpot_target_s=PROFILE.tpot_target_s,
        first_timeout_s=10.0,
        whole_timeout_s=120.0,
        cost_s=1.0,
    )


class Told(Baseline):
    """Admits all and writes down what it is told."""

    def __init__(self) -> None:
        super().__init__(POOL)
        self.log: list[tuple[object, ...]] = []

    def arrive(self, now_s: float, id: str, *facts: object) -> list[Verdict]:  # noqa: A002
        self.log.append(("arrive", now_s, id))
        return [self.decide(now_s, id)]

    def decide(self, now_s: float, request_id: str) -> Verdict:
        return self.admit(now_s, request_id)

    def first_token(self, now_s: float, id: str, /) -> None:  # noqa: A002
        self.log.append(("first_token", now_s, id))

    def finish(
        self,
        now_s: float,
        id: str,  # noqa: A002
        status: int,
        completion_tokens: int,
        ttft_s: float | None,
        e2e_s: float,
        /,
    ) -> None:
        self.log.append(("finish", now_s, id, status, completion_tokens, ttft_s, e2e_s))
        super().finish(now_s, id, status, completion_tokens, ttft_s, e2e_s)

    def cancel(self, now_s: float, id: str, /) -> None:  # noqa: A002
        self.log.append(("cancel", now_s, id))
        super().cancel(now_s, id)

    def told(self, what: str) -> list[tuple[object, ...]]:
        """What it was told of one kind."""
        return [entry for entry in self.log if entry[0] == what]


class Deaf(Told):
    """Never answers."""

    def arrive(self, now_s: float, id: str, *facts: object) -> list[Verdict]:  # noqa: A002
        return []


class Refusing(Told):
    """Rejects all, with a Retry-After."""

    def __init__(self, retry_after_s: float | None) -> None:
        super().__init__()
        self._retry_after_s = retry_after_s

    def decide(self, now_s: float, request_id: str) -> Verdict:
        return request_id, "reject", 429, self._retry_after_s


def simulated(
    policy: Baseline, *, first_tokens: bool = False, retries: bool = False, faults: tuple[Fault, ...] = ()
) -> Simulation:
    """A simulation of one engine."""
    return Simulation(
        {"engine0": EngineModel(PROFILE)}, policy, first_tokens=first_tokens, retries=retries, faults=faults
    )
