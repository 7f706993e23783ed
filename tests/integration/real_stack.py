"""Envoy between the real tidegate and an engine that is no puppet: what tests ask of any of them."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.integration.puppet_stack import Answer
from tests.integration.running_service import RunningService, start_service
from tests.integration.stack import Gateway, eventually, start_gateway
from tidegate.admission.reading import EngineReading
from tidegate.signals.registry import reader_of
from tidegate.sim.processes import Processes, free_ports


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one answer, as the engine told its client."""

    prompt_tokens: int
    completion_tokens: int


@dataclass(slots=True, kw_only=True)
class RealStack(Gateway):
    """A running Envoy, its service and its engine.

    Attributes:
        kind: of the engine, as `tidegate-engine` names it.
        engine_url: the engine, past Envoy.
        page_url: the engine's metrics.
        service: tidegate.
    """

    kind: str
    engine_url: str
    page_url: str
    service: RunningService
    _asked: list[asyncio.Task[Any]] = field(default_factory=list, repr=False)

    def ask(self, path: str = "/v1/chat/completions", *, past_envoy: bool = False, **body: Any) -> asyncio.Task[Answer]:
        """POST a body, a chat unless a path is given, and read the answer; cancel the task to leave."""
        if path == "/v1/chat/completions":
            body = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}]} | body
        url = (self.engine_url if past_envoy else self.url) + path

        async def run() -> Answer:
            async with aiohttp.ClientSession() as session, session.post(url, json=body) as response:
                content = await response.read()
                headers = {key.lower(): value for key, value in response.headers.items()}
                return Answer(status=response.status, headers=headers, body=content)

        self._asked.append(asyncio.create_task(run()))
        return self._asked[-1]

    async def whole(self, **fields: Any) -> Usage:
        """A chat answered in one piece: its usage."""
        answer = await self.ask(**fields)
        assert answer.status == 200, answer
        return _usage(json.loads(answer.body))

    async def streamed(self, **fields: Any) -> Usage:
        """A chat answered as a stream that tells its usage."""
        answer = await self.ask(stream=True, stream_options={"include_usage": True}, **fields)
        assert answer.status == 200, answer
        events = [line.removeprefix(b"data: ") for line in answer.body.splitlines() if line.startswith(b"data: ")]
        assert events.pop() == b"[DONE]"
        return _usage(json.loads([event for event in events if b'"usage"' in event][-1]))

    async def leave(self) -> None:
        """Cancel what is still asked."""
        for task in self._asked:
            task.cancel()
        await asyncio.gather(*self._asked, return_exceptions=True)

    async def reading(self) -> EngineReading:
        """The engine's page at this moment, as tidegate reads it."""
        return reader_of(self.kind).read(await self.get(self.page_url))

    async def until_engine_runs(self, running: int, *, waiting: int = 0) -> None:
        """Wait until the engine runs so many requests, and so many wait in it."""

        async def read() -> tuple[int | None, int | None]:
            reading = await self.reading()
            return reading.running, reading.waiting

        await eventually(read, lambda seen: bool(seen == (running, waiting)), what=f"{running} run, {waiting} wait")

    async def get(self, url: str) -> bytes:
        """What is at a URL."""
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            assert response.status == 200, url
            return await response.read()


def _usage(answer: Mapping[str, Any]) -> Usage:
    usage = answer["usage"]
    return Usage(prompt_tokens=usage["prompt_tokens"], completion_tokens=usage["completion_tokens"])


@asynccontextmanager
async def before_engine(
    processes: Processes,
    *,
    kind: str,
    address: str,
    page_url: str = "",
    policy: Mapping[str, str | None] | None = None,
) -> AsyncIterator[RealStack]:
    """Tidegate and Envoy before an engine that runs at an address, with these keys of the policy.

    Args:
        page_url: its metrics, where they are not at `/metrics` of its address.
    """
    port, ops_port = free_ports(2)
    named = f"{address};metrics={page_url}" if page_url else address
    keys = {"tidegate-engine": kind, "tidegate-engines": named, **(policy or {})}
    async with AsyncExitStack() as stack:
        service = await start_service(processes, port=port, ops_port=ops_port)
        gateway = await start_gateway(stack, processes, ext_proc_port=port, engines=[address], policy=keys)
        url = f"http://{address}"
        running = RealStack(
            **gateway, kind=kind, engine_url=url, page_url=page_url or f"{url}/metrics", service=service
        )
        try:
            yield running
        finally:
            await running.leave()
