"""`tidegate sim up`: leaves the whole stack running on fixed ports, to be tried by hand; Ctrl-C stops it."""

import argparse
import asyncio
import shutil
import signal
import socket
import sys
import tempfile
from dataclasses import fields
from pathlib import Path

import uvloop
from rich.console import Console

from tidegate.errors import FlagError, OperatorError
from tidegate.sim.load import TENANT_HEADER
from tidegate.sim.processes import ProcessError, Processes
from tidegate.sim.profiles import PROFILES
from tidegate.sim.report import Objective
from tidegate.sim.stack import Ports, Setup, Stack

PORTS = Ports(gateway=10000, admin=9901, grpc=9002, ops=9003, engine=8000)
PROFILE = PROFILES["demo"]
TTFT_BUDGET_S = 2.0
CLIENT_TIMEOUT_S = 60.0
CHECK_S = 1.0
TIME_SCALE_MAX = 20.0
EXIT_CHILD_FAILED = 1


def add_up_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `tidegate sim up`."""
    parser.add_argument(
        "--time-scale", type=float, default=1.0, help="real seconds for one second of the engine (default %(default)g)"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the answers' lengths (default %(default)d)")


def run_up(args: argparse.Namespace) -> int:
    """Run until Ctrl-C or SIGTERM; exit code 0 stopped as asked, 1 a part failed. OperatorError for a taken port."""
    if not 0.0 < args.time_scale <= TIME_SCALE_MAX:
        raise FlagError(f"--time-scale must be above 0 and at most {TIME_SCALE_MAX:g}: {args.time_scale:g}")
    require_free(PORTS)
    setup = Setup(
        engine=PROFILE,
        time_scale=args.time_scale,
        seed=args.seed,
        objective=Objective(ttft_s=TTFT_BUDGET_S * args.time_scale, tpot_s=PROFILE.tpot_target_s * args.time_scale),
        client_timeout_s=CLIENT_TIMEOUT_S,
    )
    log_dir = Path(tempfile.mkdtemp(prefix="tidegate-up-"))
    logs_matter = False
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_up(setup, log_dir, Console()))
    except ProcessError as error:
        logs_matter = True
        print(f"tidegate: {error}\n(logs are kept in {log_dir})", file=sys.stderr)
        return EXIT_CHILD_FAILED
    except KeyboardInterrupt:
        return 0  # before the signal had its handler: as good a way to stop
    finally:
        if not logs_matter:
            shutil.rmtree(log_dir, ignore_errors=True)
    return 0


def require_free(ports: Ports) -> None:
    """Make sure that every port can be had.

    Raises:
        OperatorError: one is taken; the message names it and what it is for.
    """
    for part in fields(ports):
        port = getattr(ports, part.name)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port that was just closed is free
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                what = f"port {port} ({part.name}) is taken: {error.strerror}"
                raise OperatorError(
                    f"{what}. `tidegate sim up` needs it; stop what listens there, then try again"
                ) from error


async def _up(setup: Setup, log_dir: Path, console: Console) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with Processes(log_dir) as processes:
        stack = Stack(processes, PORTS, setup)
        await stack.start()
        console.print(_welcome(stack, log_dir), highlight=False, markup=False, soft_wrap=True)
        while not stopped.is_set():
            stack.check()
            try:
                await asyncio.wait_for(stopped.wait(), CHECK_S)
            except TimeoutError:
                continue
        console.print("stopping")


def _welcome(stack: Stack, log_dir: Path) -> str:
    ports, engine = stack.ports, stack.setup.engine
    chat = f"curl -s {stack.url} -H 'content-type: application/json' -H '{TENANT_HEADER}: acme'"
    message = '"messages": [{"role": "user", "content": "Tell me about the tides."}]'
    burst = engine.slots * 8
    return f"""Running; Ctrl-C stops everything.
  gateway   http://127.0.0.1:{ports.gateway}   Envoy, what clients talk to
  admin     http://127.0.0.1:{ports.admin}    Envoy's stats: /stats/prometheus
  tidegate  127.0.0.1:{ports.grpc}            gRPC, for Envoy only
  ops       http://127.0.0.1:{ports.ops}    tidegate's /metrics and /healthz
  engine    http://127.0.0.1:{ports.engine}    simulated: {engine.slots} requests at once, {engine.kv_tokens} KV tokens
  logs      {log_dir}

A chat, and what the gateway says of it in its headers:
  {chat} -i -d '{{"max_tokens": 32, {message}}}'

The same, streamed:
  {chat} -N -d '{{"max_tokens": 32, "stream": true, {message}}}'

A burst of {burst} at once: how many were admitted (200) and told to come back later (429).
A new pool starts at a quarter of its limits and grows for 10 s; try it again then:
  {chat.replace(stack.url, f"'{stack.url}?[1-{burst}]'")} -d '{{"max_tokens": 200, "stream": true, {message}}}' \\
    -Z --parallel-immediate --parallel-max {burst} -o /dev/null -w '%{{http_code}}\\n' 2>/dev/null | sort | uniq -c
"""
