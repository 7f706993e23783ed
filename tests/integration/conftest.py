"""Fixtures: factories of whole stacks, so that each test says which policy it runs under."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.integration.gated_stack import GatedStack, gated_stack
from tests.integration.puppet_stack import PuppetStack, puppet_stack
from tests.integration.raw_envoy import RawEnvoy
from tests.integration.running_service import RunningService, start_service
from tests.integration.stack import ScriptedStack, Stack, scripted_stack, tidegate_stack
from tidegate.sim.processes import Processes, free_ports

T = TypeVar("T")
StackFactory = Callable[..., Awaitable[Stack]]
ScriptedStackFactory = Callable[..., Awaitable[ScriptedStack]]
GatedStackFactory = Callable[..., Awaitable[GatedStack]]
PuppetStackFactory = Callable[..., Awaitable[PuppetStack]]
RawServiceFactory = Callable[..., Awaitable[tuple[RunningService, RawEnvoy]]]


@asynccontextmanager
async def factory(
    open_stack: Callable[..., AbstractAsyncContextManager[T]], root: Path
) -> AsyncIterator[Callable[..., Awaitable[T]]]:
    """What starts stacks, each with a log folder of its own, and stops them all when the test is over."""
    numbers = count(1)
    async with AsyncExitStack() as exits:

        async def start(**arguments: Any) -> T:
            return await exits.enter_async_context(open_stack(root / f"stack-{next(numbers)}", **arguments))

        yield start


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[StackFactory]:
    """Starts engine, tidegate and Envoy: `await stack(policy={...})`; arguments as of `tidegate_stack`."""
    async with factory(tidegate_stack, tmp_path) as start:
        yield start


@pytest.fixture
async def scripted(tmp_path: Path) -> AsyncIterator[ScriptedStackFactory]:
    """Starts Envoy between scripted neighbours: `await scripted(decide=...)`; arguments as of `scripted_stack`."""
    async with factory(scripted_stack, tmp_path / "scripted") as start:
        yield start


@pytest.fixture
async def gated(tmp_path: Path) -> AsyncIterator[GatedStackFactory]:
    """Starts tidegate and Envoy before a scripted engine: `await gated(policy=...)`; arguments as of `gated_stack`."""
    async with factory(gated_stack, tmp_path / "gated") as start:
        yield start


@pytest.fixture
async def puppet(tmp_path: Path) -> AsyncIterator[PuppetStackFactory]:
    """Starts tidegate and Envoy before an engine on strings: `await puppet(policy=...)`; as of `puppet_stack`."""
    async with factory(puppet_stack, tmp_path / "puppet") as start:
        yield start


@pytest.fixture
async def raw_service(tmp_path: Path) -> AsyncIterator[RawServiceFactory]:
    """Starts tidegate alone, and a hand-driven Envoy: `await raw_service(policy)`."""
    async with AsyncExitStack() as exits:

        async def start(policy: Mapping[str, str]) -> tuple[RunningService, RawEnvoy]:
            port, ops_port = free_ports(2)
            processes = await exits.enter_async_context(Processes(tmp_path / "raw"))
            service = await start_service(processes, port=port, ops_port=ops_port)
            return service, await exits.enter_async_context(RawEnvoy(port, policy))

        yield start
