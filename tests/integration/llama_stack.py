"""Envoy between the real tidegate and the real llama.cpp, which runs a tiny model: see `tests.tiny_gguf`."""

import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.integration.real_stack import RealStack, before_engine
from tidegate.sim.processes import Processes, free_ports, http_ready

CONTEXT_TOKENS = 40_000
LONG: dict[str, Any] = {"stream": True, "max_tokens": 30_000, "ignore_eos": True}
"""An answer that takes this engine ten seconds and more, though it makes thousands of tokens a second."""


async def slots_busy(stack: RealStack) -> int:
    """Slots that the engine says are at work, on another page than the one that tidegate reads."""
    return sum(bool(slot["is_processing"]) for slot in json.loads(await stack.get(f"{stack.engine_url}/slots")))


@asynccontextmanager
async def llama_stack(
    log_dir: Path, *, model: Path, slots: int = 1, policy: Mapping[str, str | None] | None = None
) -> AsyncIterator[RealStack]:
    """Start all three: an engine of so many slots, and a pool that knows it, with these keys of the policy."""
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    async with Processes(log_dir) as processes:
        command = [sys.executable, "-m", "tests.integration.llama_engine", str(model)]
        command += [str(figure) for figure in (port, slots, CONTEXT_TOKENS)]
        await processes.start("llama", command, ready=http_ready(f"http://{address}/health"))
        keys = {"tidegate-slots-max": str(slots), **(policy or {})}
        async with before_engine(processes, kind="llamacpp", address=address, policy=keys) as stack:
            yield stack
