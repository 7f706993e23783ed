"""Envoy between the real tidegate and simulated engines, whose pages tidegate reads, or pages that a test writes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from tests.integration.running_service import RunningService, start_service
from tests.integration.stack import WAIT_S_MAX, Gateway, start_gateway
from tidegate.sim.launch import start_engine
from tidegate.sim.processes import Processes, free_ports

POLICY: dict[str, str | None] = {"tidegate-engine": "vllm"}


@dataclass(slots=True, kw_only=True)
class SignalsStack(Gateway):
    """A running Envoy, its service and its engines.

    Attributes:
        engines: addresses, as Envoy knows them.
        service: tidegate.
    """

    engines: list[str]
    service: RunningService
    _past: list[asyncio.Task[None]] = field(default_factory=list, repr=False)

    async def past_envoy(self, engine: str, *, tokens: int) -> asyncio.Task[None]:
        """Once it answers: a request straight to an engine, of so many tokens; cancel the task to leave."""
        answered = asyncio.Event()
        body = {"model": "m", "stream": True, "max_tokens": tokens, "ignore_eos": True} | {
            "messages": [{"role": "user", "content": "Hello"}]
        }

        async def run() -> None:
            url = f"http://{engine}/v1/chat/completions"
            async with aiohttp.ClientSession() as session, session.post(url, json=body) as response:
                assert response.status == 200, await response.text()
                answered.set()
                await response.read()

        self._past.append(asyncio.create_task(run()))
        async with asyncio.timeout(WAIT_S_MAX):
            await answered.wait()
        return self._past[-1]

    async def leave(self) -> None:
        """Cancel what still runs past Envoy."""
        for task in self._past:
            task.cancel()
        await asyncio.gather(*self._past, return_exceptions=True)


@asynccontextmanager
async def signals_stack(
    log_dir: Path,
    *,
    engines: int = 1,
    engine_arguments: Sequence[str] = (),
    policy: Mapping[str, str | None] | None = None,
    metrics: str = "",
) -> AsyncIterator[SignalsStack]:
    """Start them all; `metrics` is the URL of every engine's page, its own where it is empty."""
    port, ops_port, *engine_ports = free_ports(2 + engines)
    async with AsyncExitStack() as stack:
        processes = await stack.enter_async_context(Processes(log_dir))
        for number, engine_port in enumerate(engine_ports):
            await start_engine(processes, port=engine_port, arguments=engine_arguments, name=f"engine-{number}")
        service = await start_service(processes, port=port, ops_port=ops_port)
        addresses = [f"127.0.0.1:{each}" for each in engine_ports]
        named = ",".join(f"{each};metrics={metrics}" if metrics else each for each in addresses)
        keys = {"tidegate-engines": named, **POLICY, **(policy or {})}
        gateway = await start_gateway(stack, processes, ext_proc_port=port, engines=addresses, policy=keys)
        running = SignalsStack(**gateway, engines=addresses, service=service)
        try:
            yield running
        finally:
            await running.leave()


class PageServer:
    """Serves `/metrics` as the test says at the moment; `url` once its context is entered."""

    def __init__(self) -> None:
        self.answer: Callable[[], web.Response] = lambda: web.Response(status=404)
        self.url = ""
        application = web.Application()
        application.router.add_get("/metrics", self._handle)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)

    async def __aenter__(self) -> "PageServer":
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/metrics"
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self._runner.cleanup()

    async def _handle(self, _request: web.Request) -> web.Response:
        return self.answer()
