"""Real HTTP servers on 127.0.0.1, a recorder of what pollers tell, and DNS that a test writes."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address
from random import Random
from typing import TypeVar

from aiohttp import web

from tidegate.admission.reading import EngineReading
from tidegate.clock import ManualClock
from tidegate.errors import HalfPage
from tidegate.policy import EngineAddress
from tidegate.signals.allow import ENGINE_ALLOW, IPAddress, engine_allow
from tidegate.signals.budget import LOOP_SHARE_MAX, POLL_COST_S
from tidegate.signals.causes import Cause
from tidegate.signals.pace import FIRST_S_MAX
from tidegate.signals.poller import Poller
from tidegate.signals.polling import Polling
from tidegate.signals.resolve import LookupFailed, Resolve

PATIENCE_S = 20.0
"""Real seconds after which a test that waits in vain fails; never spent where all is well."""
T = TypeVar("T")
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
RawAnswer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def soon(awaitable: Awaitable[T]) -> T:
    """The result of something that must come."""
    async with asyncio.timeout(PATIENCE_S):
        return await awaitable


async def let_run() -> None:
    """Lets tasks that are ready run; no time passes."""
    for _ in range(10):
        await asyncio.sleep(0)


def page_of(running: int) -> web.Response:
    """A page that `RunningReader` reads."""
    return web.Response(text=f"running {running}\n")


class RunningReader:
    """Reads `running N`; its kind has a readiness page, as most have."""

    kind = "vllm"
    path = "/metrics"

    def read(self, page: bytes) -> EngineReading:
        name, _, figure = page.partition(b" ")
        if name != b"running":
            raise HalfPage("lacks running")
        return EngineReading(running=int(figure))


class Engine:
    """An HTTP server that answers its metrics page as the test says at the moment.

    Attributes:
        asked: one item for each request for its page, taken by the test.
        ready_status: of its readiness page.
        requests: by path.
        hosts: Host headers of all requests.
        peers: connections that asked for its page.
    """

    def __init__(self) -> None:
        self.answer: Answer = self.reading(1)
        self.asked: asyncio.Queue[None] = asyncio.Queue()
        self.ready_status = 200
        self.requests: Counter[str] = Counter()
        self.hosts: list[str] = []
        self.peers: set[object] = set()
        self.under_way = self.under_way_max = 0
        self.port = 0

    def reading(self, running: int) -> Answer:
        """Answers with a page."""

        async def answer(_request: web.Request) -> web.StreamResponse:
            return page_of(running)

        return answer

    def status(self, status: int) -> Answer:
        """Answers with a status."""

        async def answer(_request: web.Request) -> web.StreamResponse:
            return web.Response(status=status, headers={"location": "/elsewhere"})

        return answer

    def hanging(self) -> Answer:
        """Never answers."""

        async def answer(_request: web.Request) -> web.StreamResponse:
            await asyncio.Event().wait()
            raise AssertionError

        return answer

    @property
    def address(self) -> EngineAddress:
        return EngineAddress(address=f"127.0.0.1:{self.port}")

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests[request.path] += 1
        self.hosts.append(request.headers["host"])
        if request.path == "/health":
            return web.Response(status=self.ready_status)
        assert request.transport is not None
        self.peers.add(request.transport.get_extra_info("peername"))
        self.under_way += 1
        self.under_way_max = max(self.under_way, self.under_way_max)
        self.asked.put_nowait(None)
        try:
            return await self.answer(request)
        finally:
            self.under_way -= 1


@asynccontextmanager
async def engine(*, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[Engine]:
    """A running engine."""
    serving = Engine()
    application = web.Application()
    application.router.add_get("/{path:.*}", serving.handle)
    runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    serving.port = runner.addresses[0][1]
    try:
        yield serving
    finally:
        await runner.cleanup()


@asynccontextmanager
async def raw_server(answer: RawAnswer) -> AsyncIterator[int]:
    """A TCP server that does as the test says once it has been asked; its port."""
    handlers: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handlers.add(task)
        try:
            await reader.readuntil(b"\r\n\r\n")
            await answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in handlers:
            task.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)
        await server.wait_closed()


class Names:
    """DNS that a test writes: `answers[name]` is the addresses, or None where nobody answers."""

    def __init__(self, **answers: tuple[str, ...] | None) -> None:
        self.answers: dict[str, tuple[str, ...] | None] = dict(answers)
        self.asked: asyncio.Queue[str] = asyncio.Queue()

    async def __call__(self, name: str) -> tuple[IPAddress, ...]:
        self.asked.put_nowait(name)
        answer = self.answers.get(name, ())
        if answer is None:
            raise LookupFailed("no name server answers")
        return tuple(ip_address(text) for text in answer)


class Heard:
    """Records what a poller tells, in order.

    Attributes:
        events: for the test to take: `("engines", addresses)`, `("reading", address, reading)`,
            `("failure", address, cause)`.
    """

    def __init__(self) -> None:
        self.events: asyncio.Queue[tuple[object, ...]] = asyncio.Queue()
        self.fault: Exception | None = None

    def on_engines(self, addresses: tuple[str, ...], now_s: float) -> None:
        self._take("engines", addresses)

    def on_reading(self, address: str, reading: EngineReading, now_s: float) -> None:
        self._take("reading", address, reading)

    def on_failure(self, address: str, cause: Cause, now_s: float) -> None:
        self._take("failure", address, cause)

    async def next(self) -> tuple[object, ...]:
        """The next of them."""
        return await soon(self.events.get())

    def _take(self, *event: object) -> None:
        self.events.put_nowait(event)
        if self.fault is not None:
            raise self.fault


class Site:
    """A poller with all it needs.

    Args:
        names: DNS.
        allow: `--engine-allow`.
    """

    def __init__(self, names: Resolve | None = None, *, allow: str = ENGINE_ALLOW) -> None:
        self.clock = ManualClock()
        self.heard = Heard()
        self.shared = Polling.of(
            engine_allow(allow), self.clock, rng=Random(7), resolve=Names() if names is None else names
        )
        self.poller = Poller("vllm", self.heard, self.shared)

    async def start(self, *engines: EngineAddress) -> None:
        """Poll these; the first polls are under way."""
        self.poller.reconfigure(engines, RunningReader())
        await self.pass_s(FIRST_S_MAX)
        await self.pass_s(len(engines) * POLL_COST_S / LOOP_SHARE_MAX)  # they take turns

    async def pass_s(self, seconds: float) -> None:
        """Time passes, and whatever is due begins."""
        await let_run()
        self.clock.advance(seconds)
        await let_run()


@asynccontextmanager
async def site(names: Resolve | None = None, *, allow: str = ENGINE_ALLOW) -> AsyncIterator[Site]:
    """A site; at its end nothing of it may be left running."""
    before = asyncio.all_tasks()
    it = Site(names, allow=allow)
    try:
        yield it
    finally:
        it.poller.stop()
        await soon(it.poller.wait_closed())
        await it.shared.close()
    left = {task.get_name() for task in asyncio.all_tasks() - before}
    assert not {name for name in left if name.startswith(("poll", "lookup"))}, left
