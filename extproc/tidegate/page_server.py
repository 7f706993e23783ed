"""A port with a few pages for operators and probes: what the service and the GPU agent have in common."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from tidegate.errors import FlagError

Page: TypeAlias = Callable[[web.Request], Awaitable[web.Response]]


class PageServer:
    """Serves `/metrics` from a registry, and pages of others by their paths.

    Attributes:
        port: the one bound, once started.
    """

    def __init__(
        self, flag: str, address: tuple[str, int], registry: CollectorRegistry, pages: Mapping[str, Page]
    ) -> None:
        self._flag = flag
        self._host, self._asked_port = address
        self._registry = registry
        application = web.Application()
        for path, page in {"/metrics": self._metrics, **pages}.items():
            application.router.add_get(path, page)
        self._runner = web.AppRunner(application, access_log=None)
        self.port = 0

    async def start(self) -> None:
        """Bind and serve; FlagError where the address cannot be bound."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._asked_port)
        try:
            await site.start()
        except OSError as error:
            where = f"{self._host}:{self._asked_port}"
            raise FlagError(f"{self._flag}: cannot bind {where}: {error.strerror}") from error
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close the port."""
        await self._runner.cleanup()

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"content-type": CONTENT_TYPE_PLAIN_0_0_4})


def host_port(flag: str, text: str, *, such_as: str) -> tuple[str, int]:
    """Host and port of a flag's HOST:PORT; FlagError where it is none."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or len(port) > 5 or int(port) > 65535:
        raise FlagError(f"{flag}: {text!r} is not usable; expected HOST:PORT, such as {such_as}")
    return host.strip("[]"), int(port)
