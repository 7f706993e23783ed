"""The agent's port: `/gpus.json`, `/metrics`, `/healthz`. None of them waits for the driver."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry

from tidegate.agent.json_page import json_page
from tidegate.agent.records import NODE_HELP, NodeState
from tidegate.agent.sampler import Seen
from tidegate.agent.selection import BadSelection, UnknownGpu, asked
from tidegate.page_server import PageServer

_RESTART_HELPS = frozenset({NodeState.STUCK, NodeState.DRIVER_MISMATCH})


class AgentServer(PageServer):
    """Serves what the sampler has seen."""

    def __init__(
        self,
        seen: Callable[[], Seen],
        registry: CollectorRegistry,
        address: tuple[str, int],
        *,
        interval_s: float,
        window_s: float,
    ) -> None:
        super().__init__("--listen", address, registry, {"/gpus.json": self._gpus, "/healthz": self._healthz})
        self._seen = seen
        self._interval_s = interval_s
        self._window_s = window_s

    async def _gpus(self, request: web.Request) -> web.Response:
        try:
            names = asked(request.query.getall("gpus", ()))
            page = json_page(self._seen(), names, interval_s=self._interval_s, window_s=self._window_s)
        except BadSelection as error:
            return web.Response(status=400, text=f"{error}\n")
        except UnknownGpu as error:
            return web.Response(status=404, text=f"{error}\n")
        return web.Response(body=page, content_type="application/json")

    async def _healthz(self, _request: web.Request) -> web.Response:
        """503 only where another process would do better: a node without a driver is no fault of this one's."""
        state = self._seen().state
        status = 503 if state in _RESTART_HELPS else 200
        return web.Response(status=status, text=f"{state}: {NODE_HELP[state]}\n")
