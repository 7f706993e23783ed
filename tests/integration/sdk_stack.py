"""Envoy and the real service with a pool for each way to be refused, and every client's tries on record.

A client chooses its pool by the first segment of its base URL: `/queue_full/v1/chat/completions` is refused by the rule
of that name. So one Envoy serves all of them at once, and the waits that clients are told pass side by side.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.running_service import RunningService, start_service
from tests.integration.sdk_engine import HOLD_HEADER, SdkEngine
from tests.integration.sdk_tries import TryLog
from tests.integration.stack import Gateway, eventually, start_gateway
from tidegate.sim.envoy_config import ENGINE_CLUSTER, Config, cluster, connection_manager
from tidegate.sim.processes import Processes, free_ports

Keys = Mapping[str, str]
ABSENT_CLUSTER = "absent"
EXT_PROC_PER_ROUTE = "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute"


@dataclass(slots=True, kw_only=True)
class SdkStack(Gateway):
    """All of it, running.

    Attributes:
        engine: of every pool but those whose engine is gone.
        absent: the engine of these; it does not listen until it is entered.
    """

    engine: SdkEngine
    absent: SdkEngine
    service: RunningService
    tries: TryLog
    _asked: list[asyncio.Task[str]] = field(default_factory=list, repr=False)

    def ask(self, pool: str, *, hold: bool = False) -> asyncio.Task[str]:
        """POST a chat of one token; `hold`: the engine answers once the pool is released. By which rule it was refused,
        or an empty text.
        """
        headers = {HOLD_HEADER: pool} if hold else {}
        body = {"model": "tiny", "max_tokens": 1, "messages": [{"role": "user", "content": "Hello"}]}

        async def run() -> str:
            async with self.http.post(f"/{pool}/v1/chat/completions", json=body, headers=headers) as response:
                await response.read()
                return response.headers.get("x-tidegate-reason", "").partition(";")[0]

        self._asked.append(asyncio.create_task(run()))
        return self._asked[-1]

    async def fill(self, pool: str, *, waiting: int = 0) -> None:
        """Take the pool's only slot, and so many places in its queue, until the engine releases the pool."""
        self.ask(pool, hold=True)
        await self.service.until("pool_in_flight", 1, pool=pool)
        for _ in range(waiting):
            self.ask(pool, hold=True)
        await self.service.until("pool_queue_len", waiting, pool=pool)

    async def empty(self, pool: str) -> None:
        """End what `fill` began."""
        self.engine.release(pool)
        await self.service.until("pool_in_flight", 0, pool=pool)

    async def lose(self, pool: str) -> None:
        """Ask for an engine that is not there until it has failed three trials: it is down for four seconds then."""
        for _ in range(3):
            await eventually(lambda: self.ask(pool), lambda rule: rule == "", what="a trial of the engine")
            await self.service.until("pool_engines_down", 1, pool=pool)

    async def leave(self) -> None:
        """Cancel what is still asked."""
        for task in self._asked:
            task.cancel()
        await asyncio.gather(*self._asked, return_exceptions=True)


@asynccontextmanager
async def sdk_stack(log_dir: Path, pools: Mapping[str, Keys], *, gone: Mapping[str, Keys]) -> AsyncIterator[SdkStack]:
    """Start all, with a pool of these keys behind each name; the engine of those in `gone` is away."""
    port, ops_port, engine_port, absent_port, tries_port = free_ports(5)
    async with AsyncExitStack() as exits:
        engine = await exits.enter_async_context(SdkEngine(engine_port))
        tries = await exits.enter_async_context(TryLog(tries_port))
        processes = await exits.enter_async_context(Processes(log_dir))
        service = await start_service(processes, port=port, ops_port=ops_port)

        def edit(config: Config) -> None:
            tries.configure(config)
            for name, keys in pools.items():
                _add_pool(config, name, keys, ENGINE_CLUSTER)
            _add_cluster(config, absent_port)
            for name, keys in gone.items():
                _add_pool(config, name, keys, ABSENT_CLUSTER)

        engines = [f"127.0.0.1:{engine_port}"]
        gateway = await start_gateway(exits, processes, ext_proc_port=port, engines=engines, edit=edit)
        running = SdkStack(**gateway, engine=engine, absent=SdkEngine(absent_port), service=service, tries=tries)
        try:
            yield running
        finally:
            await running.leave()


def _add_pool(config: Config, name: str, keys: Keys, to_cluster: str) -> None:
    """A copy of the inference route behind one prefix, with a pool of its own: as the shipped file tells users to."""
    routes = connection_manager(config)["route_config"]["virtual_hosts"][0]["routes"]
    route = deepcopy(next(route for route in routes if route["name"] == "inference-openai"))
    route["name"], route["match"], route["route"]["cluster"] = name, {"prefix": f"/{name}/"}, to_cluster
    said = [{"key": key, "value": value} for key, value in {"tidegate-pool": name, **keys}.items()]
    overrides = {"grpc_initial_metadata": said}
    route["typed_per_filter_config"]["tidegate"] = {"@type": EXT_PROC_PER_ROUTE, "overrides": overrides}
    routes.insert(0, route)


def _add_cluster(config: Config, port: int) -> None:
    """The engines' cluster again, with an engine on another port."""
    copy = deepcopy(cluster(config, ENGINE_CLUSTER))
    copy["name"] = copy["load_assignment"]["cluster_name"] = ABSENT_CLUSTER
    (group,) = copy["load_assignment"]["endpoints"]
    group["lb_endpoints"][0]["endpoint"]["address"]["socket_address"]["port_value"] = port
    config["static_resources"]["clusters"].append(copy)
