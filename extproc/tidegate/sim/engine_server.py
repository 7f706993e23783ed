"""`tidegate sim engine`: its flags, and a process that serves until it is told to end."""

import argparse
import asyncio
import json
import logging
import signal
import sys

from tidegate.errors import FlagError
from tidegate.sim.engine_http import EngineServer, EngineSettings
from tidegate.sim.profiles import PROFILES

PORT_MAX = 65535
LOG = logging.getLogger(__name__)


def add_engine_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that `engine_settings` reads."""
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    add("--port", type=int, default=8000, help="port to listen on; 0 asks the kernel (default: %(default)s)")
    add("--profile", choices=sorted(PROFILES), default="demo", help="engine to be like (default: %(default)s)")
    add("--model", default="", help="the only model it knows (default: it answers to any name)")
    add("--slots", type=int, help="sequences it runs at once (default: the profile's)")
    add("--kv-tokens", type=int, help="tokens its KV cache holds (default: the profile's)")
    add("--batched-tokens", type=int, help="tokens of one step (default: the profile's)")
    add("--queue-len-max", type=int, help="sequences that may wait before it says 503 (default: any number)")
    add("--seed", type=int, default=0, help="of the answers' lengths (default: %(default)s)")
    add("--chunk-tokens", type=int, default=1, help="tokens a stream gathers for an event (default: %(default)s)")
    add(
        "--time-scale",
        type=float,
        default=1.0,
        help="real seconds for one second of the engine: 10 is ten times slower, 0.1 ten times faster (default: 1)",
    )
    add("--log-level", default="info", choices=("debug", "info", "warning", "error"), help="(default: %(default)s)")


def engine_settings(args: argparse.Namespace) -> EngineSettings:
    """Settings from parsed flags; FlagError where they contradict each other."""
    if args.chunk_tokens < 1 or (args.queue_len_max is not None and args.queue_len_max < 1):
        raise FlagError("--chunk-tokens and --queue-len-max must be at least 1")
    if not 0 <= args.port <= PORT_MAX:
        raise FlagError(f"--port must be between 0 and {PORT_MAX}: {args.port}")
    try:
        profile = PROFILES[args.profile].resized(
            slots=args.slots, kv_tokens=args.kv_tokens, batched_tokens=args.batched_tokens
        )
        profile = profile.slowed(args.time_scale)
    except ValueError as error:
        raise FlagError(str(error)) from error
    return EngineSettings(
        profile=profile,
        host=args.host,
        port=args.port,
        model=args.model,
        seed=args.seed,
        queue_len_max=args.queue_len_max,
        chunk_tokens=args.chunk_tokens,
    )


def run_engine(args: argparse.Namespace) -> int:
    """Serve on an event loop of its own; returns the exit status.

    Raises:
        FlagError: flags contradict each other, or the address cannot be had.
    """
    logging.basicConfig(level=args.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        if sys.platform == "win32":
            return asyncio.run(serve_engine(args))
        import uvloop  # noqa: PLC0415  there is none on Windows

        return uvloop.run(serve_engine(args))
    except OSError as error:
        raise FlagError(f"--host {args.host} --port {args.port}: {error}") from error


async def serve_engine(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; prints `{"listening": "HOST:PORT"}` once it accepts. Returns the exit status."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    async with EngineServer(engine_settings(args)) as server:
        print(json.dumps({"listening": server.address}), flush=True)
        LOG.info("a simulated %s listens on %s", args.profile, server.address)
        await ended.wait()
    LOG.info("ended: %s", server.model.counters)
    return 0
