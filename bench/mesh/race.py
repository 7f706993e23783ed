"""One scene for one contender: start the parts, send, count, stop."""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.mesh import scenes
from bench.mesh.client import Clients, send_all
from bench.mesh.contenders import Name, contender
from bench.mesh.job import Job
from bench.mesh.parts import Parts
from bench.mesh.scenes import Mix, Scene
from tidegate.sim.processes import Processes
from tidegate.sim.report import percentile
from tidegate.sim.scenario import OPENINGS
from tidegate.sim.stack import Ports

DRAIN_S_MAX = 6.0
"""Longest wait for open jobs after the last was sent: a little more than users' patience for a first token."""
WATCH_S = 0.25
CORES_MAX = 1.6
"""Above this, on two cores, processes wait for each other and the latencies say nothing about admission."""
LATE_S_MAX = 0.1
"""Where one in a hundred jobs is sent later than this, the machine is too busy to measure on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What came of one scene.

    Attributes:
        jobs: by window, those that came in it.
        tokens, wasted_tokens: completion tokens that the engine made from the end of the warm-up on, and those of them
            that were for clients that had left.
        preemptions: over the whole run.
        cores: processor time of all processes together, clients included, over the whole run.
        cores_by_part: the same, of each.
        late_p99_s: how late jobs were sent.
    """

    jobs: dict[str, tuple[Job, ...]]
    tokens: int
    wasted_tokens: int
    preemptions: int
    cores: float
    cores_by_part: dict[str, float]
    late_p99_s: float

    def void_reason(self) -> str | None:
        """Why its figures say nothing about admission; None where they do."""
        if self.cores > CORES_MAX:
            return f"{self.cores:.2f} cores, above {CORES_MAX:g}"
        if self.late_p99_s > LATE_S_MAX:
            return f"one in a hundred jobs was sent {self.late_p99_s * 1000:.0f} ms late"
        return None


async def run_scene(name: Name, scene: Scene, mix: Mix, *, seed: int, log_dir: Path) -> Run:
    """The scene on fresh parts.

    Raises:
        ProcessError: a part did not come up, or ended on the way.
    """
    ports = Ports.free()
    who = contender(name, load_1_per_s=mix.everyday_per_s, engine_address=f"127.0.0.1:{ports.engine}")
    async with Processes(log_dir) as processes, Parts(processes, ports, who, seed=seed) as parts:
        clients = Clients(
            url=parts.url,
            patience=scenes.PATIENCE,
            openings=OPENINGS,
            engine=scenes.ENGINE,
            time_scale=scenes.TIME_SCALE,
            drain_s_max=DRAIN_S_MAX,
            seed=seed,
        )
        before: list[dict[str, int]] = []
        started_s, cpu_s = time.monotonic(), time.process_time()
        parts_cpu_s = parts.cpu_by_part_s()
        counting = asyncio.create_task(_counters_at(parts, scene.counted_from_s, before))
        jobs = await _watched(send_all(scene.arrivals(seed), clients), parts)
        await counting
        seconds = time.monotonic() - started_s
        cores = {part: (spent_s - parts_cpu_s[part]) / seconds for part, spent_s in parts.cpu_by_part_s().items()}
        cores["clients"] = (time.process_time() - cpu_s) / seconds
        counters = await parts.engine_counters()
    return Run(
        jobs={key: _between(jobs, each.start_s, each.end_s) for key, each in scene.windows.items()},
        tokens=counters["completion_tokens"] - before[0]["completion_tokens"],
        wasted_tokens=counters["wasted_tokens"] - before[0]["wasted_tokens"],
        preemptions=counters["preemptions"],
        cores=sum(cores.values()),
        cores_by_part=cores,
        late_p99_s=percentile([job.tries[0].late_s for job in jobs], 0.99) or 0.0,
    )


async def _counters_at(parts: Parts, at_s: float, into: list[dict[str, int]]) -> None:
    await asyncio.sleep(at_s)
    into.append(await parts.engine_counters())


async def _watched(load: Coroutine[Any, Any, tuple[Job, ...]], parts: Parts) -> tuple[Job, ...]:
    """Send while the parts are watched: one that ends stops the run at once."""
    task = asyncio.create_task(load)
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=WATCH_S)
            parts.check()
        return task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _between(jobs: tuple[Job, ...], start_s: float, end_s: float) -> tuple[Job, ...]:
    """Those that came then, in the order of their coming."""
    came = [job for job in jobs if start_s <= job.arrival.at_s < end_s]
    return tuple(sorted(came, key=lambda job: job.arrival.at_s))
