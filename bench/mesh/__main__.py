"""`python -m bench.mesh`: admission controls raced in real time through the real Envoy, in about 15 minutes."""

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import uvloop
from rich.console import Console

from bench.mesh import scenes
from bench.mesh.contenders import Name, contender
from bench.mesh.race import Run, run_scene
from bench.mesh.result import Result, result_of
from bench.mesh.scenes import Mix, Scene, SceneName
from bench.mesh.tables import tables_of
from tidegate.sim.processes import ProcessError

_Choice = TypeVar("_Choice", bound=StrEnum)
SHORT_NAMES = (Name.NOTHING, Name.ADAPTIVE_CONCURRENCY, Name.P99_WINDOW, Name.TIDEGATE)
SHORT_SCENES = (SceneName.OVERLOAD, SceneName.FLOOD)
WIDTH = 144
EXIT_VOID = 1
EXIT_CHILD_FAILED = 2
EXIT_INTERRUPTED = 130


def main() -> int:
    """Read the arguments and run; the exit status: 0 done, 1 a run is void, 2 a part failed."""
    arguments = _parser().parse_args()
    names = arguments.only or (SHORT_NAMES if arguments.short else tuple(Name))
    mix, times = Mix.measured(), scenes.SHORT if arguments.short else scenes.FULL
    wanted = arguments.scenes or (SHORT_SCENES if arguments.short else tuple(SceneName))
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    _show_opening(console, mix, names)
    log_dir = Path(tempfile.mkdtemp(prefix="tidegate-mesh-"))
    try:
        results = {
            name: _race(
                name, {scene: scene.build(mix, times) for scene in wanted}, mix, arguments.seed, log_dir, console
            )
            for name in names
        }
    except ProcessError as error:
        print(f"{error}\n(logs are kept in {log_dir})", file=sys.stderr)
        return EXIT_CHILD_FAILED
    except KeyboardInterrupt:
        shutil.rmtree(log_dir, ignore_errors=True)
        print("interrupted: everything is stopped", file=sys.stderr)
        return EXIT_INTERRUPTED
    shutil.rmtree(log_dir, ignore_errors=True)
    return _show(console, results, arguments.json, arguments.seed)


def _race(name: Name, wanted: dict[SceneName, Scene], mix: Mix, seed: int, log_dir: Path, console: Console) -> Result:
    runs: dict[SceneName, tuple[Scene, Run]] = {}
    for scene_name, scene in wanted.items():
        with console.status(f"{name}: {scene_name}"), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            run = runner.run(run_scene(name, scene, mix, seed=seed, log_dir=log_dir / f"{name}-{scene_name}"))
        runs[scene_name] = (scene, run)
        good = {key: sum(job.met(scenes.OBJECTIVE) for job in jobs) for key, jobs in run.jobs.items()}
        counts = ", ".join(f"{key} {good[key]} of {len(jobs)} in time" for key, jobs in run.jobs.items())
        console.print(f"{name:<21}{scene_name:<9}{counts}", highlight=False)
    return result_of(runs, seed=seed)


def _show_opening(console: Console, mix: Mix, names: tuple[Name, ...]) -> None:
    console.print(
        f"Engine: {scenes.PROFILE.name}; a second of life takes {scenes.TIME_SCALE:g} s. Objective: first token within "
        f"{scenes.OBJECTIVE.ttft_s:g} s, then {scenes.OBJECTIVE.tpot_s * 1000:g} ms a token. Load 1 (95 % within "
        f"objective, no control): {mix.everyday_per_s:.1f} everyday requests/s, {mix.quiet_per_s:.1f} of the quiet "
        f"tenant's or {mix.flood_per_s:.1f} of the flood's.",
        highlight=False,
    )
    for name in names:
        about = contender(name, load_1_per_s=mix.everyday_per_s, engine_address="").about
        console.print(f"{name:<21}{about}", highlight=False)


def _show(console: Console, results: dict[Name, Result], json_path: Path | None, seed: int) -> int:
    for table in tables_of(results):
        console.print(table)
    console.print(
        "Times in seconds of the bench. Good, in time: jobs whose last try was within objective; from start: with the "
        "first token counted from the job's first try. TTFT: of tries let in; '>': users left then; the quiet "
        "tenant's leaves out those that saw no first token. Waste: completion tokens for users that had left. Range: "
        "bootstrap. Every contender met the same arrivals.",
        highlight=False,
    )
    if json_path is not None:
        data = {"seed": seed, "results": {name: asdict(result) for name, result in results.items()}}
        json_path.write_text(json.dumps(data, indent=2) + "\n")
    void = [(name, scene, why) for name, result in results.items() for scene, why in result.void.items()]
    for name, scene, why in void:
        console.print(f"[bold red]void[/bold red]: {name}, {scene}: {why}")
    return EXIT_VOID if void else 0


def _chosen(kind: type[_Choice]) -> Callable[[str], tuple[_Choice, ...]]:
    """Reads a comma list of the kind's values."""

    def read(text: str) -> tuple[_Choice, ...]:
        try:
            return tuple(kind(part) for part in text.split(","))
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{error}; known: {', '.join(kind)}") from error

    return read


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.mesh", description=__doc__)
    add = parser.add_argument
    add("--only", type=_chosen(Name), metavar="NAME,...", help=f"of {', '.join(Name)} (all)")
    add("--scenes", type=_chosen(SceneName), metavar="SCENE,...", help=f"of {', '.join(SceneName)} (all)")
    add("--short", action="store_true", help="shorter, without the spike, fewer contenders: about 4 minutes")
    add("--seed", type=int, default=1, help="of arrivals, lengths and pauses (%(default)s)")
    add("--json", type=Path, metavar="FILE", help="also write every figure there")
    return parser


if __name__ == "__main__":
    sys.exit(main())
