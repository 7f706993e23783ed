"""DNS names to IP addresses, without ever stopping the event loop, and at most a few lookups at a time.

The system's resolver blocks, for half a minute and more where name servers are gone. Each lookup has a daemon thread
of its own, so that a hung one holds up neither other work of thread pools nor the end of the process; four of them are
the limit, which a lookup gives back when it really ends, not when its caller has lost patience.

Where a name has IPv4 addresses, its IPv6 addresses are left out: an engine with both would count as two.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from ipaddress import ip_address
from threading import Thread
from typing import Any

from tidegate.errors import EngineError
from tidegate.signals.allow import IPAddress

LOOKUPS_IN_FLIGHT_MAX = 4

Resolve = Callable[[str], Awaitable[tuple[IPAddress, ...]]]
"""The addresses of a name, in order and each once, empty where there is no such name; raises LookupFailed."""

_NO_SUCH_NAME = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})


class LookupFailed(EngineError):
    """There was no answer, so that nothing is known; the message says why."""


class SystemResolver:
    """What the system resolves, as a `Resolve`.

    Args:
        look_up: blocks and answers as `socket.getaddrinfo` does.
    """

    def __init__(self, look_up: Callable[..., list[tuple[Any, ...]]] = socket.getaddrinfo) -> None:
        self._look_up = look_up
        self._free = asyncio.Semaphore(LOOKUPS_IN_FLIGHT_MAX)

    async def __call__(self, name: str) -> tuple[IPAddress, ...]:
        loop = asyncio.get_running_loop()
        await self._free.acquire()
        answer: asyncio.Future[tuple[IPAddress, ...]] = loop.create_future()
        thread = Thread(target=self._run, args=(name, loop, answer), name="tidegate-dns", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self._free.release()
            raise LookupFailed(str(error)) from error
        return await answer

    def _run(self, name: str, loop: asyncio.AbstractEventLoop, answer: "asyncio.Future[tuple[IPAddress, ...]]") -> None:
        found: tuple[IPAddress, ...] | LookupFailed
        try:
            found = _addresses(self._look_up(name, None, type=socket.SOCK_STREAM))
        except Exception as error:
            no_such_name = isinstance(error, socket.gaierror) and error.errno in _NO_SUCH_NAME
            found = () if no_such_name else LookupFailed(str(error))
        with suppress(RuntimeError):  # the loop is closed: nobody wants to know any more
            loop.call_soon_threadsafe(self._deliver, answer, found)

    def _deliver(
        self, answer: "asyncio.Future[tuple[IPAddress, ...]]", found: tuple[IPAddress, ...] | LookupFailed
    ) -> None:
        self._free.release()
        if answer.done():
            return  # given up meanwhile
        if isinstance(found, LookupFailed):
            answer.set_exception(found)
        else:
            answer.set_result(found)


def _addresses(found: list[tuple[Any, ...]]) -> tuple[IPAddress, ...]:
    """The addresses of one family; those that hold on one network interface only (`%eth0`) say nothing to others."""
    every = {ip_address(sockaddr[0]) for *_, sockaddr in found if "%" not in sockaddr[0]}
    version = min((address.version for address in every), default=4)
    return tuple(sorted((address for address in every if address.version == version), key=int))
