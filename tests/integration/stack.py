"""Real Envoy with a service and an engine around it, on ports that the kernel chose: the base of every test here."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from tests.integration.scripted_engine import ScriptedEngine
from tests.integration.scripted_ext_proc import Decide, ScriptedExtProc, admit
from tidegate.sim.envoy_admin import AdminClient
from tidegate.sim.envoy_config import Config, render_envoy, shipped_template
from tidegate.sim.launch import start_engine, start_envoy, start_tidegate
from tidegate.sim.processes import Child, Processes, free_ports

WAIT_S_MAX = 10.0


async def eventually(
    read: Callable[[], Awaitable[Any]], holds: Callable[[Any], bool], *, what: str, wait_s_max: float = WAIT_S_MAX
) -> Any:
    """Read again and again until it holds; the value read. Fails after `wait_s_max`, showing the last value."""
    deadline_s = asyncio.get_running_loop().time() + wait_s_max
    while True:
        value = await read()
        if holds(value):
            return value
        assert asyncio.get_running_loop().time() < deadline_s, f"{what} did not come about; last: {value}"
        await asyncio.sleep(0.02)  # Envoy tells nobody when a counter changes


@dataclass(slots=True, kw_only=True)
class Gateway:
    """A running Envoy and a client of it.

    Attributes:
        url: of the gateway, such as `http://127.0.0.1:40123`.
        http: a client session whose base is `url`.
    """

    url: str
    envoy: Child
    admin: AdminClient
    http: aiohttp.ClientSession

    def chat(self, *, stream: bool = False, headers: Mapping[str, str] | None = None, **fields: Any) -> Any:
        """POST /v1/chat/completions; an async context manager of the response. `fields` join the body."""
        body = {"model": "tiny", "stream": stream, "messages": [{"role": "user", "content": "Hello"}]} | fields
        return self.http.post("/v1/chat/completions", json=body, headers=headers)

    async def counter(self, name: str) -> int:
        """The sum of every counter or gauge whose name contains `name`, over all tags."""
        stats = await self.admin.stats()
        return sum(value for key, value in stats.items() if name in key)

    async def until_counter(self, name: str, at_least: int = 1) -> int:
        """Wait until the counter (see `counter`) has reached a figure."""
        read = lambda: self.counter(name)  # noqa: E731
        return int(await eventually(read, lambda value: bool(value >= at_least), what=f"{name} >= {at_least}"))

    async def until_prometheus(self, text: str) -> str:
        """Wait until the Prometheus page contains a text; the page. Histograms appear with a flush."""
        return str(await eventually(self.admin.prometheus, lambda page: text in page, what=f"{text!r} on the page"))

    def error_lines(self) -> list[str]:
        """Lines of Envoy's log at level error or critical."""
        return [line for line in self.envoy.log_text().splitlines() if "[error]" in line or "[critical]" in line]


@dataclass(slots=True, kw_only=True)
class ScriptedStack(Gateway):
    """Envoy between a scripted service and a scripted engine: tests of the configuration alone."""

    engine: ScriptedEngine
    service: ScriptedExtProc


@dataclass(slots=True, kw_only=True)
class Stack(Gateway):
    """Envoy between tidegate and the simulated engine, each a process of its own.

    Attributes:
        ops_url: tidegate's metrics and health.
        engine_url: the engine, past Envoy.
        tidegate, engine: the processes; `restart_tidegate` replaces the former.
    """

    processes: Processes
    tidegate: Child
    engine: Child
    ops_url: str
    engine_url: str
    _restart: Callable[[], Awaitable[Child]] = field(repr=False)

    async def restart_tidegate(self) -> Child:
        """Start tidegate again on the same ports, after the test has ended it."""
        self.tidegate = await self._restart()
        return self.tidegate


def quick_stats(config: Config) -> None:
    """Flush stats often: histograms show only after a flush."""
    config["stats_flush_interval"] = "0.1s"


@asynccontextmanager
async def scripted_stack(
    log_dir: Path,
    *,
    decide: Decide = admit,
    with_service: bool = True,
    policy: Mapping[str, str | None] | None = None,
    edit: Callable[[Config], None] | None = None,
) -> AsyncIterator[ScriptedStack]:
    """Envoy, a scripted engine and, unless `with_service` is false, a scripted service."""
    gateway_port, admin_port, service_port, engine_port = free_ports(4)
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(ScriptedEngine(engine_port))
        service = ScriptedExtProc(service_port, decide)
        if with_service:
            await stack.enter_async_context(service)
        processes = await stack.enter_async_context(Processes(log_dir))
        config = _render(gateway_port, admin_port, service_port, [f"127.0.0.1:{engine_port}"], policy, edit)
        gateway = await _gateway(stack, processes, config, gateway_port, admin_port)
        yield ScriptedStack(**gateway, engine=engine, service=service)


@asynccontextmanager
async def tidegate_stack(
    log_dir: Path,
    *,
    policy: Mapping[str, str | None] | None = None,
    tidegate_arguments: Sequence[str] = (),
    engine_arguments: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    edit: Callable[[Config], None] | None = None,
) -> AsyncIterator[Stack]:
    """The simulated engine, tidegate and Envoy, with these keys of the policy."""
    gateway_port, admin_port, port, ops_port, engine_port = free_ports(5)
    async with AsyncExitStack() as stack:
        processes = await stack.enter_async_context(Processes(log_dir))

        async def start() -> Child:
            return await start_tidegate(processes, port=port, ops_port=ops_port, arguments=tidegate_arguments, env=env)

        engine = await start_engine(processes, port=engine_port, arguments=engine_arguments)
        tidegate = await start()
        config = _render(gateway_port, admin_port, port, [f"127.0.0.1:{engine_port}"], policy, edit)
        gateway = await _gateway(stack, processes, config, gateway_port, admin_port)
        yield Stack(
            **gateway,
            processes=processes,
            tidegate=tidegate,
            engine=engine,
            ops_url=f"http://127.0.0.1:{ops_port}",
            engine_url=f"http://127.0.0.1:{engine_port}",
            _restart=start,
        )


def _render(
    gateway_port: int,
    admin_port: int,
    ext_proc_port: int,
    engines: Sequence[str],
    policy: Mapping[str, str | None] | None,
    edit: Callable[[Config], None] | None,
) -> str:
    def edits(config: Config) -> None:
        quick_stats(config)
        if edit is not None:
            edit(config)

    return render_envoy(
        shipped_template(),
        gateway_port=gateway_port,
        admin_port=admin_port,
        ext_proc_port=ext_proc_port,
        engines=engines,
        policy=policy,
        edit=edits,
    )


async def _gateway(
    stack: AsyncExitStack, processes: Processes, config: str, gateway_port: int, admin_port: int
) -> dict[str, Any]:
    envoy = await start_envoy(processes, config, admin_port=admin_port)
    url = f"http://127.0.0.1:{gateway_port}"
    admin = await stack.enter_async_context(AdminClient(admin_port))
    timeout = aiohttp.ClientTimeout(total=30.0)
    http = await stack.enter_async_context(aiohttp.ClientSession(url, timeout=timeout))
    return {"url": url, "envoy": envoy, "admin": admin, "http": http}


async def start_gateway(
    stack: AsyncExitStack,
    processes: Processes,
    *,
    ext_proc_port: int,
    engines: Sequence[str],
    policy: Mapping[str, str | None] | None = None,
    edit: Callable[[Config], None] | None = None,
) -> dict[str, Any]:
    """Envoy with the shipped configuration on ports of its own, and a client of it: the arguments of a `Gateway`."""
    gateway_port, admin_port = free_ports(2)
    config = _render(gateway_port, admin_port, ext_proc_port, engines, policy, edit)
    return await _gateway(stack, processes, config, gateway_port, admin_port)
