"""The second port, for operators and probes: `/metrics`, `/healthz`."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from tidegate.errors import FlagError


class OpsServer:
    """Serves the operators' pages."""

    def __init__(self, registry: CollectorRegistry, ready: Callable[[], bool], host: str, port: int) -> None:
        self._registry = registry
        self._ready = ready
        self._host = host
        self._asked_port = port
        application = web.Application()
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
            raise FlagError(f"--ops-listen: cannot bind {self._host}:{self._asked_port}: {error.strerror}") from error
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close the port."""
        await self._runner.cleanup()

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"content-type": CONTENT_TYPE_PLAIN_0_0_4})

    async def _healthz(self, _request: web.Request) -> web.Response:
        ready = self._ready()
        return web.Response(status=200 if ready else 503, text="ok\n" if ready else "draining\n")
