"""Who sends the requests: `wrk` where it is installed (C, the lightest), else the client beside this file."""

import asyncio
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.overhead.exchange import PATH, request_body

WRK_S = 2
"""`wrk` runs for a time, not for a number of requests."""
RUN_S_MAX = 60.0

_WRK_SCRIPT = """
wrk.method = "POST"
wrk.headers["content-type"] = "application/json"
wrk.headers["authorization"] = "Bearer sk-0000"
wrk.body = [==[%s]==]
function done(summary, latency)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format(
    '\\n{"requests": %%d, "failed": %%d, "elapsed_s": %%f, "p50_s": %%f, "p99_s": %%f}\\n',
    summary.requests, failed, summary.duration / 1e6, latency:percentile(50) / 1e6, latency:percentile(99) / 1e6))
end
"""


class LoadError(Exception):
    """The load could not be put on, or not every request was answered with 200."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """What a generator saw of one run; `failed` counts answers that were no 200."""

    requests: int
    failed: int
    elapsed_s: float
    p50_s: float
    p99_s: float


class Generator(Protocol):
    """A program that puts load on a gateway of 127.0.0.1."""

    name: str

    async def run(self, port: int, *, connections: int, requests: int) -> LoadResult:
        """One run to its end; LoadError where anything failed."""
        ...


class OwnClient:
    """The client of this package: exactly the number of requests."""

    name = "own client (uvloop); install wrk for a lighter one"

    async def run(self, port: int, *, connections: int, requests: int) -> LoadResult:
        command = [sys.executable, "-m", "bench.overhead.client", str(port), str(connections), str(requests)]
        return await _result_of(command)


class Wrk:
    """`wrk`: about two seconds' worth of requests, however many that is."""

    def __init__(self, program: str, directory: Path) -> None:
        self.name = f"wrk, {WRK_S} s a run"
        self._program = program
        self._script = directory / "request.lua"
        self._script.write_text(_WRK_SCRIPT % request_body().decode())

    async def run(self, port: int, *, connections: int, requests: int) -> LoadResult:
        del requests
        options = ["--threads", "1", "--connections", str(connections), "--duration", f"{WRK_S}s"]
        url = f"http://127.0.0.1:{port}{PATH}"
        return await _result_of([self._program, *options, "--script", str(self._script), url])


def best_generator(directory: Path, *, own: bool = False) -> Generator:
    """`wrk` where it is installed and `own` is not set, else the client of this package.

    Args:
        directory: where a script for `wrk` may be written.
    """
    program = None if own else shutil.which("wrk")
    return OwnClient() if program is None else Wrk(program, directory)


async def _result_of(command: Sequence[str]) -> LoadResult:
    """Run a generator whose last line of output is a LoadResult as JSON."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), RUN_S_MAX)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise LoadError(f"{command[0]} ended with status {process.returncode}\n{output.decode(errors='replace')}")
    result = LoadResult(**json.loads(output.splitlines()[-1]))
    if result.failed or not result.requests:
        raise LoadError(f"{result.failed} of {result.requests} requests failed\n{output.decode(errors='replace')}")
    return result
