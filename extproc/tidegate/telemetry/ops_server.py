"""The second port, for operators and probes: `/metrics`, `/healthz`."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry

from tidegate.page_server import PageServer


class OpsServer(PageServer):
    """Serves the operators' pages."""

    def __init__(self, registry: CollectorRegistry, ready: Callable[[], bool], address: tuple[str, int]) -> None:
        super().__init__("--ops-listen", address, registry, {"/healthz": self._healthz})
        self._ready = ready

    async def _healthz(self, _request: web.Request) -> web.Response:
        ready = self._ready()
        return web.Response(status=200 if ready else 503, text="ok\n" if ready else "draining\n")
