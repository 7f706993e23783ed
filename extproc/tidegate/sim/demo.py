"""`tidegate sim demo`: the same requests without and with Tidegate, on real Envoy, side by side.

Three phases (normal load, twice the capacity, one tenant floods), each run twice on a fresh engine. Without Tidegate
means the kill switch of the shipped configuration: the same Envoy, the same engine, no decision. Tidegate itself runs
through all phases, as it would in production, and keeps what it has learned.
"""

import argparse
import asyncio
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Coroutine, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import uvloop
from rich.console import Console

from tidegate.errors import FlagError
from tidegate.sim import scenario
from tidegate.sim.demo_runs import DemoRuns
from tidegate.sim.demo_view import show_closing, show_opening
from tidegate.sim.envoy_admin import AdminClient
from tidegate.sim.envoy_report import lines_about_decisions
from tidegate.sim.processes import ProcessError, Processes
from tidegate.sim.report import Control, RunResult
from tidegate.sim.report_table import data_of
from tidegate.sim.stack import Ports, Setup, Stack

CORES_MAX = 1.6
"""Above this, on two cores, processes wait for each other and the latencies say nothing about admission."""
LATE_S_MAX = 0.1
"""Where one in a hundred requests is sent later than this, the machine is too busy to measure on."""
SECONDS_MAX = 600.0
EXIT_CHILD_FAILED = 1
EXIT_INTERRUPTED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the caller asked for; `seconds` is how long each run sends requests."""

    seconds: float
    seed: int
    json_path: Path


def add_demo_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `tidegate sim demo`."""
    parser.add_argument("--seconds", type=float, default=8.0, help="seconds of load a run (default %(default)g)")
    parser.add_argument("--seed", type=int, default=1, help="seed of arrivals and lengths (default %(default)d)")
    parser.add_argument(
        "--json", type=Path, default=Path("demo.json"), help="file for all figures (default %(default)s)"
    )


def run_demo(args: argparse.Namespace) -> int:
    """Run the demo; the exit code: 0 done, 1 a part failed, 130 interrupted. FlagError for a flag out of bounds."""
    if not 0.0 < args.seconds <= SECONDS_MAX:
        raise FlagError(f"--seconds must be above 0 and at most {SECONDS_MAX:g}: {args.seconds:g}")
    plan = Plan(seconds=args.seconds, seed=args.seed, json_path=args.json)
    log_dir = Path(tempfile.mkdtemp(prefix="tidegate-demo-"))
    logs_matter = False
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_until_told(_demo(plan, log_dir, Console())))
    except ProcessError as error:
        logs_matter = True
        print(f"tidegate: {error}\n(logs are kept in {log_dir})", file=sys.stderr)
        return EXIT_CHILD_FAILED
    except (asyncio.CancelledError, KeyboardInterrupt):
        print("interrupted: everything is stopped", file=sys.stderr)
        return EXIT_INTERRUPTED
    finally:
        if not logs_matter:
            shutil.rmtree(log_dir, ignore_errors=True)
    return 0


async def _until_told(story: Coroutine[Any, Any, None]) -> None:
    """Run it to its end, or until SIGINT or SIGTERM cancels it."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    await story


async def _demo(plan: Plan, log_dir: Path, console: Console) -> None:
    capacity_per_s = scenario.capacity()
    phases = scenario.phases(capacity_per_s)
    show_opening(console, capacity_per_s=capacity_per_s, seconds=plan.seconds)
    async with Processes(log_dir) as processes:
        stack = Stack(processes, Ports.free(), _setup(plan))
        await stack.start()
        async with AdminClient(stack.ports.admin) as admin:
            demo = DemoRuns(stack, admin, console, seconds=plan.seconds, seed=plan.seed)
            await demo.warm_up()
            runs = [await demo.run(phase, control) for phase in phases for control in Control]
            lines = lines_about_decisions(await admin.prometheus())
    reasons = void_reasons(runs)
    _write_json(plan, capacity_per_s, runs, lines, reasons)
    show_closing(console, runs, phases, lines)
    console.print(_cpu_line(runs))
    for reason in reasons:
        console.print(f"[bold red]This demo is void[/bold red]: {reason}")
    console.print(f"All figures are in {plan.json_path}.", highlight=False)


def void_reasons(runs: Sequence[RunResult]) -> list[str]:
    """Why the figures of these runs say nothing about admission; empty where they do."""
    cores = max(run.cores for run in runs)
    late_s = max(run.figures.late_p99_s for run in runs)
    reasons = []
    if cores > CORES_MAX:
        reasons.append(f"a run used {cores:.2f} cores, above {CORES_MAX:g}; its processes waited for each other")
    if late_s > LATE_S_MAX:
        reasons.append(f"one in a hundred requests was sent {late_s * 1000:.0f} ms late; the machine is busy")
    return reasons


def _setup(plan: Plan) -> Setup:
    return Setup(
        engine=scenario.PROFILE,
        time_scale=scenario.TIME_SCALE,
        seed=plan.seed,
        objective=scenario.OBJECTIVE,
        client_timeout_s=scenario.PATIENCE.whole_s,
    )


def _cpu_line(runs: Sequence[RunResult]) -> str:
    mean, most = sum(run.cores for run in runs) / len(runs), max(run.cores for run in runs)
    return f"\nProcessor time of all processes, clients included: {mean:.2f} cores, at most {most:.2f} in a run."


def _write_json(
    plan: Plan, capacity_per_s: float, runs: Sequence[RunResult], envoy_lines: Sequence[str], reasons: Sequence[str]
) -> None:
    data = {
        "seed": plan.seed,
        "seconds": plan.seconds,
        "time_scale": scenario.TIME_SCALE,
        "capacity_per_s": capacity_per_s,
        "engine": asdict(scenario.ENGINE),
        "objective": asdict(scenario.OBJECTIVE),
        "patience": asdict(scenario.PATIENCE),
        "void": list(reasons),
        "runs": data_of(runs),
        "envoy": list(envoy_lines),
    }
    plan.json_path.write_text(json.dumps(data, indent=2) + "\n")
