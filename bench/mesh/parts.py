"""The running parts of one scene: a fresh engine, a fresh Envoy and, where the contender has one, a fresh Tidegate."""

from types import TracebackType
from typing import Self

import aiohttp

from bench.mesh import scenes
from bench.mesh.contenders import Contender
from tidegate.sim.envoy_config import (
    ENGINE_CLUSTER,
    Config,
    cluster,
    connection_manager,
    render_envoy,
    shipped_template,
)
from tidegate.sim.launch import start_engine, start_envoy, start_tidegate
from tidegate.sim.processes import Child, ProcessError, Processes
from tidegate.sim.stack import BYPASS_KEY, LOG_TAIL_CHARS, Ports

BREAKER_MAX = 100_000


class Parts:
    """An async context manager: started on entering, all stopped on leaving."""

    def __init__(self, processes: Processes, ports: Ports, contender: Contender, *, seed: int) -> None:
        self.ports = ports
        self._processes = processes
        self._contender = contender
        self._seed = seed
        self._children: list[Child] = []
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Start them; ProcessError where one does not come up."""
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5.0))
        try:
            await self._start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    @property
    def url(self) -> str:
        """The chat completions endpoint behind the gateway."""
        return f"http://127.0.0.1:{self.ports.gateway}/v1/chat/completions"

    @property
    def cpu_s(self) -> float:
        """Processor seconds of all parts so far."""
        return sum(child.cpu_s for child in self._children)

    def cpu_by_part_s(self) -> dict[str, float]:
        """The same, by part."""
        return {child.name: child.cpu_s for child in self._children}

    def check(self) -> None:
        """Raises ProcessError where a part has ended; the message holds the end of its log."""
        for child in self._children:
            if child.returncode is not None:
                tail = child.log_text()[-LOG_TAIL_CHARS:]
                raise ProcessError(f"{child.name} ended with status {child.returncode}\n{tail}")

    async def engine_counters(self) -> dict[str, int]:
        """What the engine has counted since its start, and its gauges."""
        assert self._session is not None
        async with self._session.get(f"http://127.0.0.1:{self.ports.engine}/sim/stats") as response:
            counters: dict[str, int] = await response.json()
            return counters

    async def _start(self) -> None:
        engine = [
            *("--profile", scenes.PROFILE.name),
            *("--time-scale", f"{scenes.TIME_SCALE:g}"),
            *("--chunk-tokens", str(scenes.CHUNK_TOKENS)),
            *("--seed", str(self._seed)),
        ]
        self._children.append(await start_engine(self._processes, port=self.ports.engine, arguments=engine))
        if self._contender.policy is not None:
            self._children.append(await start_tidegate(self._processes, port=self.ports.grpc, ops_port=self.ports.ops))
        config = rendered(self._contender, self.ports)
        self._children.append(await start_envoy(self._processes, config, admin_port=self.ports.admin))

    async def _stop(self) -> None:
        await self._processes.stop_all()
        if self._session is not None:
            await self._session.close()


def rendered(contender: Contender, ports: Ports) -> str:
    """The shipped Envoy configuration as this contender has it, as YAML text."""

    def edit(config: Config) -> None:
        lift_breakers(config)
        if contender.policy is None:
            switch_off(config)
        if contender.http_filter is not None:
            connection_manager(config)["http_filters"].insert(-1, contender.http_filter)

    return render_envoy(
        shipped_template(),
        gateway_port=ports.gateway,
        admin_port=ports.admin,
        ext_proc_port=ports.grpc,
        engines=[f"127.0.0.1:{ports.engine}"],
        policy=contender.policy,
        edit=edit,
    )


def lift_breakers(config: Config) -> None:
    """The engine's circuit breakers far away: only the contender limits, and for `nothing` nobody does."""
    cluster(config, ENGINE_CLUSTER)["circuit_breakers"]["thresholds"] = [
        {
            "max_connections": BREAKER_MAX,
            "max_pending_requests": BREAKER_MAX,
            "max_requests": BREAKER_MAX,
            "retry_budget": {"budget_percent": {"value": 20}, "min_retry_concurrency": 3},
        }
    ]


def switch_off(config: Config) -> None:
    """The kill switch: every request goes past the service, and past the filters that read answers for it."""
    for layer in config["layered_runtime"]["layers"]:
        if "static_layer" in layer:
            layer["static_layer"][BYPASS_KEY] = 100
