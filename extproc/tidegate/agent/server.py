"""The agent's port: `/gpus.json`, `/metrics`, `/healthz`. None of them waits for the driver."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from tidegate.agent.json_page import json_page
from tidegate.agent.records import NODE_HELP, NodeState
from tidegate.agent.sampler import Seen
from tidegate.agent.selection import BadSelection, UnknownGpu, asked
from tidegate.errors import FlagError

_RESTART_HELPS = frozenset({NodeState.STUCK, NodeState.DRIVER_MISMATCH})


class AgentServer:
    """Serves what the sampler has seen."""

    def __init__(
        self,
        seen: Callable[[], Seen],
        registry: CollectorRegistry,
        *,
        host: str,
        port: int,
        interval_s: float,
        window_s: float,
    ) -> None:
        self._seen = seen
        self._registry = registry
        self._host = host
        self._asked_port = port
        self._interval_s = interval_s
        self._window_s = window_s
        application = web.Application()
        application.router.add_get("/gpus.json", self._gpus)
        application.router.add_get("/metrics", self._metrics)
        application.router.add_get("/healthz", self._healthz)
        self._runner = web.AppRunner(application, access_log=None)
        self.port = 0

    async def start(self) -> None:
        """Bind and serve; FlagError where the address cannot be bound."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._asked_port)
        try:
            await site.start()
        except OSError as error:
            raise FlagError(f"--listen: cannot bind {self._host}:{self._asked_port}: {error.strerror}") from error
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close the port."""
        await self._runner.cleanup()

    async def _gpus(self, request: web.Request) -> web.Response:
        try:
            names = asked(request.query.getall("gpus", ()))
            page = json_page(self._seen(), names, interval_s=self._interval_s, window_s=self._window_s)
        except BadSelection as error:
            return web.Response(status=400, text=f"{error}\n")
        except UnknownGpu as error:
            return web.Response(status=404, text=f"{error}\n")
        return web.Response(body=page, content_type="application/json")

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"content-type": CONTENT_TYPE_PLAIN_0_0_4})

    async def _healthz(self, _request: web.Request) -> web.Response:
        """503 only where another process would do better: a node without a driver is no fault of this one's."""
        state = self._seen().state
        status = 503 if state in _RESTART_HELPS else 200
        return web.Response(status=status, text=f"{state}: {NODE_HELP[state]}\n")
