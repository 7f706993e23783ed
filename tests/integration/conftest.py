"""Fixtures: factories of whole stacks, so that each test says which policy it runs under."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.integration.stack import ScriptedStack, Stack, scripted_stack, tidegate_stack

StackFactory = Callable[..., Awaitable[Stack]]
ScriptedStackFactory = Callable[..., Awaitable[ScriptedStack]]


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[StackFactory]:
    """Starts engine, tidegate and Envoy: `await stack(policy={...})`; arguments as of `tidegate_stack`."""
    numbers = count(1)
    async with AsyncExitStack() as exits:

        async def start(**arguments: Any) -> Stack:
            return await exits.enter_async_context(tidegate_stack(tmp_path / f"stack-{next(numbers)}", **arguments))

        yield start


@pytest.fixture
async def scripted(tmp_path: Path) -> AsyncIterator[ScriptedStackFactory]:
    """Starts Envoy between scripted neighbours: `await scripted(decide=...)`; arguments as of `scripted_stack`."""
    numbers = count(1)
    async with AsyncExitStack() as exits:

        async def start(**arguments: Any) -> ScriptedStack:
            return await exits.enter_async_context(scripted_stack(tmp_path / f"scripted-{next(numbers)}", **arguments))

        yield start
