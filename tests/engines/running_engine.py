"""An engine that one file's tests share: it takes long to start, so each test has its own Envoy and Tidegate only."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.integration.real_stack import RealStack
from tidegate.sim.processes import Processes, http_ready

Policy = dict[str, str | None]
Start = Callable[[Policy], Awaitable[RealStack]]
"""Starts tidegate and Envoy before the engine, with these keys of the policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Where it is.

    Attributes:
        kind: as `tidegate-engine` names it.
        address: `HOST:PORT` that it serves on.
        page_url: its metrics, where they are not at `/metrics` of its address.
    """

    kind: str
    address: str
    page_url: str = ""


@asynccontextmanager
async def running(
    engine: Engine, command: Sequence[str], *, ready_path: str, log_dir: Path, env: Mapping[str, str]
) -> AsyncIterator[Engine]:
    """Run it until the block ends; `ready_path` answers 200 once it serves."""
    async with Processes(log_dir, stop_deadline_s=30.0) as processes:
        ready = http_ready(f"http://{engine.address}{ready_path}")
        await processes.start(engine.kind, command, env=env, ready=ready, ready_s_max=300.0)
        yield engine
