"""What a contender made of the scenes it ran, in figures."""

from collections.abc import Mapping
from dataclasses import dataclass

from bench.mesh import scenes
from bench.mesh.figures import Figures, figures_of, recovery_s, tenant_jobs
from bench.mesh.quiet import Quiet, quiet_of
from bench.mesh.race import Run
from bench.mesh.scenes import Scene, SceneName
from tidegate.sim.scenario import QUIET

RECOVERED_OVER_S, RECOVERED_STEP_S = 5.0 * scenes.TIME_SCALE, 1.0 * scenes.TIME_SCALE


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One contender; None for what it did not run.

    Attributes:
        waste, flood_waste: completion tokens made for clients that had left, as a share of all, at twice the load and
            in the flood.
        flood: of both tenants beside each other.
        recovered_s: after the spike; None also where it was not by the end of the run.
        cores: of all processes, by scene; cores_by_part of the scene that used most.
        void: why figures say nothing, by scene.
    """

    overload: Figures | None
    waste: float | None
    quiet: Quiet | None
    flood: Figures | None
    flood_waste: float | None
    spike: Figures | None
    recovered_s: float | None
    cores: Mapping[str, float]
    cores_by_part: Mapping[str, float]
    void: Mapping[str, str]


def result_of(runs: Mapping[SceneName, tuple[Scene, Run]], *, seed: int) -> Result:
    """Sum up the scenes of one contender; at least one."""
    most = max((run for _, run in runs.values()), key=lambda run: run.cores)
    overload, flood, spike = (runs.get(name) for name in SceneName)
    return Result(
        overload=_window(overload, scenes.OVERLOAD),
        waste=_waste(overload),
        quiet=None if flood is None else _quiet(flood[1], seed),
        flood=_window(flood, scenes.BESIDE),
        flood_waste=_waste(flood),
        spike=_window(spike, scenes.SPIKE),
        recovered_s=None if spike is None else _recovery_s(*spike),
        cores={name: run.cores for name, (_, run) in runs.items()},
        cores_by_part=most.cores_by_part,
        void={name: reason for name, (_, run) in runs.items() if (reason := run.void_reason()) is not None},
    )


def _window(ran: tuple[Scene, Run] | None, window: str) -> Figures | None:
    if ran is None:
        return None
    scene, run = ran
    return figures_of(run.jobs[window], scenes.OBJECTIVE, seconds=scene.windows[window].seconds)


def _waste(ran: tuple[Scene, Run] | None) -> float | None:
    return None if ran is None else ran[1].wasted_tokens / max(ran[1].tokens, 1)


def _quiet(run: Run, seed: int) -> Quiet:
    solo, beside = (tenant_jobs(run.jobs[window], QUIET) for window in (scenes.SOLO, scenes.BESIDE))
    return quiet_of(solo, beside, scenes.OBJECTIVE, seed=seed)


def _recovery_s(scene: Scene, run: Run) -> float | None:
    window = scene.windows[scenes.AFTER]
    return recovery_s(
        run.jobs[scenes.AFTER],
        scenes.OBJECTIVE,
        spike_end_s=window.start_s,
        until_s=window.end_s,
        over_s=RECOVERED_OVER_S,
        step_s=RECOVERED_STEP_S,
    )
