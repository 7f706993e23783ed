"""What all engines have in common: Envoy and Tidegate in front of them, anew for each test."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path

import pytest_asyncio

from tests.engines.running_engine import Engine, Policy, Start
from tests.integration.real_stack import RealStack, before_engine
from tidegate.sim.processes import Processes


@pytest_asyncio.fixture(loop_scope="module")
async def start(engine: Engine, tmp_path: Path) -> AsyncIterator[Start]:
    """Starts tidegate and Envoy before the file's engine: `await start(policy)`."""
    numbers = count(1)
    async with AsyncExitStack() as exits:

        async def run(policy: Policy) -> RealStack:
            processes = await exits.enter_async_context(Processes(tmp_path / f"stack-{next(numbers)}"))
            opened = before_engine(
                processes, kind=engine.kind, address=engine.address, page_url=engine.page_url, policy=policy
            )
            return await exits.enter_async_context(opened)

        yield run
