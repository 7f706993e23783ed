"""Envoy between the real tidegate and several engines on strings, among which tidegate or Envoy chooses."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.integration.puppet_engine import Call, PuppetEngine
from tests.integration.puppet_stack import PuppetStack
from tests.integration.running_service import start_service
from tests.integration.stack import eventually, start_gateway
from tidegate.sim.envoy_config import Config
from tidegate.sim.processes import Processes, free_ports

ENGINE_HEADER = "x-gateway-destination-endpoint"


@dataclass(slots=True, kw_only=True)
class SteeredStack(PuppetStack):
    """A puppet stack of several engines; `engine` is the first of them.

    Attributes:
        engines: by the address that Envoy knows them under.
    """

    engines: dict[str, PuppetEngine]

    @property
    def counts(self) -> list[int]:
        """Requests that each engine has got."""
        return [len(engine.calls) for engine in self.engines.values()]

    @property
    def told(self) -> set[str | None]:
        """Endpoints that requests carried when they reached an engine."""
        return {call.headers.get(ENGINE_HEADER) for engine in self.engines.values() for call in engine.calls}

    def play(self, script: Callable[[Call], None]) -> None:
        """From now on every engine does this with whatever comes."""
        for engine in self.engines.values():
            engine.script = script

    async def arrived(self, count: int) -> None:
        """Wait until so many requests have reached the engines, and no more."""

        async def read() -> int:
            return sum(self.counts)

        await eventually(read, lambda seen: bool(seen >= count), what=f"{count} requests at the engines")
        assert sum(self.counts) == count


@asynccontextmanager
async def steered_stack(
    log_dir: Path,
    *,
    engines: int = 3,
    steer: bool = True,
    policy: Mapping[str, str | None] | None = None,
    edit: Callable[[Config], None] | None = None,
) -> AsyncIterator[SteeredStack]:
    """Start them all, with these keys of the policy."""
    port, ops_port, *engine_ports = free_ports(2 + engines)
    async with AsyncExitStack() as stack:
        puppets = {f"127.0.0.1:{each}": await stack.enter_async_context(PuppetEngine(each)) for each in engine_ports}
        addresses = list(puppets)
        processes = await stack.enter_async_context(Processes(log_dir))
        service = await start_service(processes, port=port, ops_port=ops_port)
        keys = {"tidegate-engines": ",".join(addresses), "tidegate-steer": "on" if steer else "off"} | dict(
            policy or {}
        )
        gateway = await start_gateway(stack, processes, ext_proc_port=port, engines=addresses, policy=keys, edit=edit)
        running = SteeredStack(**gateway, engine=puppets[addresses[0]], engines=puppets, service=service)
        try:
            yield running
        finally:
            await running.leave()
