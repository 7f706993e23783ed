"""`python -m bench.overhead`: what Tidegate adds to a request, in about a minute."""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import psutil
from rich.console import Console

from bench.overhead.gateways import ESTIMATORS, Gateways, Way
from bench.overhead.load import LoadError, best_generator
from bench.overhead.measure import Plan, measure
from bench.overhead.table import ratios_of, row_of, table_of
from tidegate.sim.processes import ProcessError, Processes

SETTLED_SHARE_MIN = 0.99  # a generator that runs for a time leaves its last requests unfinished


def main() -> int:
    """Read the arguments and run; the exit status."""
    arguments = _parser().parse_args()
    plan = Plan(
        rounds=arguments.rounds,
        connections=arguments.connections,
        requests=arguments.requests,
        single_requests=max(1, arguments.requests // 10),
    )
    try:
        return asyncio.run(_bench(plan, own_client=arguments.own_client))
    except (ProcessError, LoadError) as error:
        print(error, file=sys.stderr)
        return 1


async def _bench(plan: Plan, *, own_client: bool) -> int:
    console = Console(width=None if sys.stdout.isatty() else 100)
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as directory, console.status("starting") as status:
        generator = best_generator(Path(directory), own=own_client)
        async with Processes(Path(directory)) as processes:
            stack = Gateways(processes)
            gateways = await stack.start()
            rounds = await measure(gateways, generator, plan, report=status.update)
            counters = {way: await stack.counters(way) for way in ESTIMATORS}
    rows = {way: row_of(runs) for way, runs in rounds.items()}
    console.print(table_of(rows, plan.connections))
    for line in ratios_of(rows, rounds):
        console.print(line)
    console.print(
        f"medians of {plan.rounds} rounds; load by {generator.name}; Envoy with one worker; {psutil.cpu_count()} cores "
        f"for all parts, load average {load_before:.1f} before; with {plan.connections} connections the machine is "
        "full, so that latency is mostly waiting for a core"
    )
    return max(_check(way, counters[way], console) for way in ESTIMATORS)


def _check(way: Way, counters: Mapping[str, float], console: Console) -> int:
    """The figures hold only if each request was decided, admitted at once and settled."""
    decided, settled = _sum(counters, "decisions"), _sum(counters, "outcomes")
    admitted = counters.get("decisions admit", 0.0)
    console.print(f"{way[0]} decided {decided:.0f} requests, admitted {admitted:.0f} at once, settled {settled:.0f}")
    return 0 if admitted == decided and settled >= SETTLED_SHARE_MIN * decided else 1


def _sum(counters: Mapping[str, float], kind: str) -> float:
    return sum(value for name, value in counters.items() if name.startswith(f"{kind} "))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.overhead", description=__doc__)
    plan = Plan()
    parser.add_argument("--rounds", type=int, default=plan.rounds, help="of each of them (%(default)s)")
    parser.add_argument("--requests", type=int, default=plan.requests, help="a round; a tenth one by one (%(default)s)")
    parser.add_argument("--connections", type=int, default=plan.connections, help="at once (%(default)s)")
    parser.add_argument("--own-client", action="store_true", help="even where wrk is installed")
    return parser


if __name__ == "__main__":
    sys.exit(main())
