"""A stack whose tidegate comes and goes: Envoy, an engine on strings, and a service that can be ended and restarted."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.puppet_engine import Call, PuppetEngine
from tests.integration.puppet_stack import ONE_SLOT, Answer, PuppetStack
from tests.integration.running_service import RunningService, start_service
from tests.integration.stack import eventually, start_gateway
from tidegate.sim.envoy_config import Config
from tidegate.sim.processes import Processes, free_ports

PATIENT_POOL: dict[str, str | None] = ONE_SLOT | {"tidegate-ttft-budget-ms": "60000"}
"""One request runs, and whoever finds room in the queue waits for its turn."""


@dataclass(slots=True, kw_only=True)
class GatedStack(PuppetStack):
    """A puppet stack whose service can be replaced."""

    _start: Callable[[], Awaitable[RunningService]] = field(repr=False)

    async def kill(self) -> None:
        """End tidegate as a crash would."""
        self.service.child.signal(signal.SIGKILL)
        await self.service.child.wait()

    async def restart(self) -> RunningService:
        """Start tidegate again on the same ports, after the test has ended it."""
        self.service = await self._start()
        return self.service

    async def at_engine(self, count: int) -> None:
        """Wait until this many requests have reached the engine, and no more."""

        async def read() -> int:
            return len(self.engine.calls)

        await eventually(read, lambda seen: bool(seen >= count), what=f"{count} requests at the engine")
        assert len(self.engine.calls) == count

    async def streaming_and_held(self, *, held: int) -> tuple[asyncio.Task[Answer], Call, list[asyncio.Task[Answer]]]:
        """A stream that has begun, its call at the engine, and requests that wait behind it for the only slot."""
        streaming = self.ask(stream=True)
        call = await self.engine.call()
        call.begin()
        waiting = [self.ask() for _ in range(held)]
        await self.held(held)
        return streaming, call, waiting

    def release(self) -> None:
        """The engine completes all it has, and from now on whatever comes, at once."""
        self.engine.script = Call.complete
        for call in self.engine.calls:
            call.complete()


@asynccontextmanager
async def gated_stack(
    log_dir: Path,
    *,
    policy: Mapping[str, str | None] | None = None,
    arguments: Sequence[str] = (),
    edit: Callable[[Config], None] | None = None,
) -> AsyncIterator[GatedStack]:
    """Start all three: tidegate with these flags, and a patient pool of one slot but for the keys of `policy`."""
    port, ops_port, engine_port = free_ports(3)
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(PuppetEngine(engine_port))
        processes = await stack.enter_async_context(Processes(log_dir))

        async def start() -> RunningService:
            return await start_service(processes, port=port, ops_port=ops_port, arguments=arguments)

        service = await start()
        keys = PATIENT_POOL | dict(policy or {})
        engines = [f"127.0.0.1:{engine_port}"]
        gateway = await start_gateway(stack, processes, ext_proc_port=port, engines=engines, policy=keys, edit=edit)
        yield GatedStack(**gateway, engine=engine, service=service, _start=start)
