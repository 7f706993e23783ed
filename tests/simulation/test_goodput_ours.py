"""The controller that serves traffic, behind its adapter, in front of the engine model."""

import pytest
from bench.goodput.contender import Scene
from bench.goodput.contenders import CONTENDERS
from bench.goodput.measure import Figures, figures_of
from bench.goodput.simulation import Fault, Simulation

from tests.simulation.goodput_scenes import POOL, PROFILE, request
from tidegate.sim.engine_model import EngineModel

WINDOW = (10.0, 40.0)
OVERLOAD = [
    request(number / 30.0, index=number, prompt_tokens=500 + 1_000 * (number % 3), completion_tokens=20 + number % 200)
    for number in range(1_350)
]


def ran(name: str, *, faults: tuple[Fault, ...] = ()) -> tuple[Simulation, Figures]:
    """A policy under about twice what the engine can do."""
    contender = CONTENDERS[name]
    engine = EngineModel(PROFILE)
    truth = {"engine0": lambda decoding, prefill, kv, attention: engine.cost.seconds(decoding + prefill, kv, attention)}
    simulation = Simulation(
        {"engine0": engine},
        contender.make(Scene(pool=POOL, step_seconds=truth, seed=0)),
        first_tokens=contender.first_tokens,
        reading_period_s=contender.reading_period_s,
        faults=faults,
    )
    simulation.run(OVERLOAD, WINDOW)
    return simulation, figures_of(simulation, WINDOW)


@pytest.mark.parametrize("name", ["ours", "ours-compat", "ours-native", "clair"])
def test_overload_is_served_without_waste_in_every_mode(name: str) -> None:
    """At twice the capacity a good part meets its objectives, nothing is preempted and hardly anything wasted."""
    simulation, figures = ran(name)
    assert all(each.ended_s is not None for each in simulation.attempts if WINDOW[0] <= each.arrived_s < WINDOW[1])
    assert figures.attainment > 0.35
    assert figures.preemptions == 0
    assert figures.waste < 0.02
    assert figures.prefill_waste < 0.02
    assert "left" not in figures.ends


def test_without_control_the_same_load_serves_nobody() -> None:
    """The overload of these tests is one: without control hardly anybody meets the objectives."""
    _, figures = ran("none")
    assert figures.attainment < 0.1


@pytest.mark.parametrize("name", ["ours", "ours-native"])
def test_a_crash_is_survived(name: str) -> None:
    """While the only engine is down requests fail or are refused; afterwards they are served again."""
    _, figures = ran(name, faults=(Fault(engine=0, at_s=15.0, until_s=20.0),))
    late = [counts for second, counts in figures.by_second.items() if second >= 30]
    assert sum(good for _, good in late) > 0.3 * sum(arrived for arrived, _ in late)
