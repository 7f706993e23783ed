"""Envoy between the real tidegate and an engine on strings: tests of the whole service, moment by moment."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.integration.puppet_engine import PuppetEngine
from tests.integration.running_service import RunningService, start_service
from tests.integration.stack import Gateway, start_gateway
from tidegate.sim.envoy_config import Config
from tidegate.sim.processes import Processes, free_ports

ONE_SLOT: dict[str, str | None] = {"tidegate-slots-max": "1"}
REFUSE_ALL_ELSE: dict[str, str | None] = ONE_SLOT | {"tidegate-queue-len-max": "0"}
"""One request runs and no other may wait."""
IN_ORDER: dict[str, str | None] = {"tidegate-queue-order": "fifo"}
"""Whoever comes later waits longer, however small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole answer as a client got it; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        """The error object of the body."""
        error: dict[str, Any] = json.loads(self.body)["error"]
        return error

    @property
    def queue_ms(self) -> int:
        """What the gateway says of the hold."""
        return int(self.headers["x-tidegate-queue-ms"])


@dataclass(slots=True, kw_only=True)
class PuppetStack(Gateway):
    """A running Envoy, its service and its engine."""

    engine: PuppetEngine
    service: RunningService
    _asked: list[asyncio.Task[Answer]] = field(default_factory=list, repr=False)

    def ask(
        self, path: str = "/v1/chat/completions", *, headers: Mapping[str, str] | None = None, **fields: Any
    ) -> asyncio.Task[Answer]:
        """POST a chat of one token and read the answer; cancel the task to leave. `fields` join the body."""
        messages = [{"role": "user", "content": "Hello"}]
        body = {"model": "tiny", "stream": False, "max_tokens": 1, "messages": messages} | fields

        async def run() -> Answer:
            async with self.http.post(path, json=body, headers=headers) as response:
                content = await response.read()
                lower = {key.lower(): value for key, value in response.headers.items()}
                return Answer(status=response.status, headers=lower, body=content)

        self._asked.append(asyncio.create_task(run()))
        return self._asked[-1]

    async def leave(self) -> None:
        """Cancel what is still asked: a test that failed must not bury its reason under others."""
        for task in self._asked:
            task.cancel()
        await asyncio.gather(*self._asked, return_exceptions=True)

    async def held(self, count: int) -> None:
        """Wait until so many requests wait for their verdict."""
        await self.service.until("pool_queue_len", count)

    async def assert_sound(self) -> None:
        """Everything has been given back, nothing broke, nothing went undecided, nobody complains."""
        await self.service.assert_sound()
        assert await self.counter("no_decision") == 0
        for complaint in ("spurious_msgs_received", "rejected_header_mutations", "streams_failed", "message_timeouts"):
            assert await self.counter(f"ext_proc.admission.{complaint}") == 0, complaint
        assert self.error_lines() == []


@asynccontextmanager
async def puppet_stack(
    log_dir: Path,
    *,
    policy: Mapping[str, str | None] | None = None,
    edit: Callable[[Config], None] | None = None,
) -> AsyncIterator[PuppetStack]:
    """Start all three, with these keys of the policy."""
    port, ops_port, engine_port = free_ports(3)
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(PuppetEngine(engine_port))
        processes = await stack.enter_async_context(Processes(log_dir))
        service = await start_service(processes, port=port, ops_port=ops_port)
        engines = [f"127.0.0.1:{engine_port}"]
        gateway = await start_gateway(stack, processes, ext_proc_port=port, engines=engines, policy=policy, edit=edit)
        running = PuppetStack(**gateway, engine=engine, service=service)
        try:
            yield running
        finally:
            await running.leave()
