"""`tidegate agent`: its flags, and a process that serves until it is told to end."""

import argparse
import asyncio
import logging
import math
import signal

from tidegate.agent.metrics_page import GpuCollector, registry_of
from tidegate.agent.nvml import Nvml
from tidegate.agent.sampler import Sampler
from tidegate.agent.server import AgentServer
from tidegate.agent.watch import Watch
from tidegate.agent.window import Window
from tidegate.arguments import add_log_level, number, whole
from tidegate.clock import SystemClock
from tidegate.page_server import host_port

EPILOG = """\
/gpus.json tells memory and utilisation of each GPU and MIG slice, ?gpus=0&gpus=1 or ?gpus=GPU-... those of some.
/metrics is the same for Prometheus. /healthz fails where a restart of this process is what helps. A node without GPU,
driver or permission is told as a state, not as an error, and is looked at again. Exit codes: 0 stopped as asked, 2 a
flag that cannot be used, or nvidia-ml-py is missing.
"""

log = logging.getLogger(__name__)


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the flags, and `run` as what to do."""
    parser.add_argument(
        "--listen",
        default="127.0.0.1:9004",
        metavar="HOST:PORT",
        help="address of /gpus.json, /metrics and /healthz; port 0 takes a free one (default %(default)s)",
    )
    parser.add_argument(
        "--interval-ms",
        type=whole(20, 1000),
        default=100,
        metavar="MS",
        help="time between two looks (default %(default)s)",
    )
    parser.add_argument(
        "--window-s",
        type=number(10.0, 60.0),
        default=30.0,
        metavar="SECONDS",
        help="what percentiles of utilisation are taken over; no shorter than the scrapes are apart, so that nothing "
        "goes unseen between two (default %(default)g)",
    )
    add_log_level(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status.

    Raises:
        OperatorError: the bindings are not installed, or the address cannot be used.
    """
    logging.basicConfig(level=arguments.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    address = host_port("--listen", arguments.listen, such_as="127.0.0.1:9004")
    interval_s, window_s = arguments.interval_ms / 1000.0, arguments.window_s
    samples_max = math.ceil(window_s / interval_s) + 1
    watch = Watch(Nvml(), lambda: Window(window_s, samples_max))
    sampler = Sampler(watch.look, watch.close, clock=SystemClock(), interval_s=interval_s)
    registry = registry_of(GpuCollector(sampler.seen, lambda: sampler.looks))
    server = AgentServer(sampler.seen, registry, address, interval_s=interval_s, window_s=window_s)
    asyncio.run(_serve(server, sampler, address[0]))
    return 0


async def _serve(server: AgentServer, sampler: Sampler, host: str) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, ended.set)
    await server.start()
    log.info("listening on %s:%d", host, server.port)
    sampler.start()
    try:
        await ended.wait()
    finally:
        await server.stop()
        sampler.stop()
        log.info("stopped")
