"""One cell of a table: engines and workload; and one run of a policy in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.goodput.adapter import StepSeconds
from bench.goodput.contender import Contender, Scene
from bench.goodput.measure import Figures, figures_of
from bench.goodput.simulation import Fault, Simulation
from bench.goodput.workload import Workload, requests_of
from tidegate.sim.engine_model import EngineModel
from tidegate.sim.profiles import PROFILES, EngineProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Where policies are compared.

    Attributes:
        workload: what arrives.
        profile, slowed: the engine, and how many times slower than its profile it and its clients are.
        stated: whether a policy is told the engines' limits.
        retries: whether clients do.
        faults: of engines.
    """

    workload: Workload
    profile: str = "llama-70b-4xh100"
    slowed: float = 1.0
    stated: bool = True
    retries: bool = False
    faults: tuple[Fault, ...] = ()

    @property
    def engine_profile(self) -> EngineProfile:
        """The true engine."""
        profile = PROFILES[self.profile]
        return profile if self.slowed == 1.0 else profile.slowed(self.slowed)


def run_cell(cell: Cell, contender: Contender, seed: int) -> Figures:
    """One run, from arrivals to figures."""
    profile = cell.engine_profile
    engines = {
        f"engine{number}": EngineModel(profile, queue_tokens_max=contender.queue_tokens_max)
        for number in range(cell.workload.engines)
    }
    policy = contender.make(Scene(pool=_pool(cell, engines), step_seconds=_truths(engines), seed=seed))
    requests = requests_of(cell.workload, profile, seed, exact=contender.knows_lengths)
    simulation = Simulation(
        engines,
        policy,
        first_tokens=contender.first_tokens,
        reading_period_s=contender.reading_period_s,
        retries=cell.retries,
        faults=cell.faults,
        seed=seed,
    )
    simulation.run(requests, cell.workload.window)
    return figures_of(simulation, cell.workload.window)


def _pool(cell: Cell, engines: Mapping[str, EngineModel]) -> dict[str, Any]:
    if not cell.stated:
        return {"engines": [{"name": name} for name in engines]}
    profile = cell.engine_profile
    limits = {"slots": profile.slots, "kv_tokens": profile.kv_tokens, "batched_tokens": profile.batched_tokens}
    return {"engines": [{"name": name, **limits} for name in engines]}


def _truths(engines: Mapping[str, EngineModel]) -> dict[str, StepSeconds]:
    return {name: _truth(engine) for name, engine in engines.items()}


def _truth(engine: EngineModel) -> StepSeconds:
    """How long a step of this engine takes now; it follows the engine when that slows down."""

    def step_seconds(decoding: float, prefill_tokens: float, kv_tokens: float, attention: float) -> float:
        return engine.cost.seconds(decoding + prefill_tokens, kv_tokens, attention)  # type: ignore[arg-type]

    return step_seconds
