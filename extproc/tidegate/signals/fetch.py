"""One page over HTTP, from an address that may be asked, within a deadline and a size.

Names are resolved for each new connection and connected to at exactly the addresses that were judged, with the name in
the Host header: a name that resolves elsewhere a moment later gains nothing. Redirects are not followed, proxies of the
environment not used, cookies not kept, compression not asked for (a small answer could become a huge page). Connections
are kept, so that a poll a second costs no handshakes; names are then resolved only when a connection was lost.
"""

import socket
from ipaddress import ip_address
from typing import NoReturn

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from tidegate.clock import Clock
from tidegate.signals.allow import EngineAllow, IPAddress
from tidegate.signals.causes import Cause, PollFailed
from tidegate.signals.resolve import LookupFailed, Resolve
from tidegate.signals.timing import deadline

PAGE_BYTES_MAX = 4 * 1024 * 1024
"""vLLM's page has 60 KB; those of a node that serves many models have some hundreds."""
DEADLINE_S = 2.0
KEPT_S = 15.0
"""An idle connection is kept longer than the longest pause between two polls."""


class Fetcher:
    """Fetches pages; one for the process, for its connections are shared.

    Args:
        allow: addresses that may be connected to.
        resolve: DNS.
        clock: deadlines are told by it.
    """

    def __init__(self, allow: EngineAllow, resolve: Resolve, clock: Clock) -> None:
        self._allow = allow
        self._resolve = resolve
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None

    async def fetch(self, url: str, *, name: str = "", wait_s: float = DEADLINE_S) -> bytes:
        """The body of a 200 at `url`.

        Args:
            url: `http://` or `https://`.
            name: the name its address was resolved from, where the URL has the address; it goes into the Host header.
            wait_s: deadline for all of it.

        Raises:
            PollFailed: there is no such page, for the cause that it names.
        """
        target = self._checked(url, name)
        headers = {"Host": f"{name}:{target.port}"} if name else None
        try:
            async with deadline(self._clock, wait_s):
                return await self._get(target, headers)
        except TimeoutError:
            raise PollFailed(Cause.TIMEOUT, f"not within {wait_s:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            _raise(error)

    async def close(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _checked(self, text: str, name: str) -> URL:
        """The URL; where its host is an address, one that may be connected to. Names are judged when resolved."""
        try:
            url = URL(text)
            host, port = url.raw_host, url.port
            address = _literal(host or "")
        except ValueError as error:
            raise PollFailed(Cause.BAD_URL, str(error)) from None
        if not host or not port or url.scheme not in {"http", "https"}:
            raise PollFailed(Cause.BAD_URL, text)
        if address is not None and not self._allow.allows(address, name):
            raise PollFailed(Cause.FORBIDDEN, f"{address} is not in --engine-allow")
        return url

    async def _get(self, url: URL, headers: dict[str, str] | None) -> bytes:
        session = self._session or self._open()
        async with session.get(url, headers=headers, allow_redirects=False) as response:
            return await _body(response)  # what is left unread closes the connection

    def _open(self) -> aiohttp.ClientSession:
        # How many requests are under way is bounded by the pollers, which wait in turn and see how long.
        connector = aiohttp.TCPConnector(
            resolver=_JudgedResolver(self._resolve, self._allow), use_dns_cache=False, limit=0, keepalive_timeout=KEPT_S
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers={"accept-encoding": "identity", "user-agent": "tidegate"},
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
            trust_env=False,
        )
        return self._session


async def _body(response: aiohttp.ClientResponse) -> bytes:
    if 300 <= response.status < 400:
        raise PollFailed(Cause.REDIRECT, f"HTTP {response.status}", status=response.status)
    if response.status != 200:
        raise PollFailed(Cause.STATUS, f"HTTP {response.status}", status=response.status)
    coding = response.headers.get("content-encoding", "identity")
    if coding.lower() != "identity":
        raise PollFailed(Cause.BAD_HTTP, f"content-encoding {coding!r}, though identity was asked for")
    if (response.content_length or 0) > PAGE_BYTES_MAX:
        raise PollFailed(Cause.TOO_LARGE, f"{response.content_length} bytes; at most {PAGE_BYTES_MAX} are read")
    page = bytearray()
    async for chunk in response.content.iter_any():
        page += chunk
        if len(page) > PAGE_BYTES_MAX:
            raise PollFailed(Cause.TOO_LARGE, f"more than {PAGE_BYTES_MAX} bytes")
    return bytes(page)


def _literal(host: str) -> IPAddress | None:
    """The address that a host is, None for a name.

    Raises:
        ValueError: neither: numbers that some would take for an address, such as 127.1.
    """
    return ip_address(host) if ":" in host or host.replace(".", "").isdigit() else None


def _raise(error: Exception) -> NoReturn:
    raise PollFailed(_cause_of(error), str(error)) from None


def _cause_of(error: Exception) -> Cause:
    match error:
        case aiohttp.ClientSSLError():
            return Cause.TLS
        case aiohttp.ClientConnectorError():
            return Cause.REFUSED if isinstance(error.os_error, ConnectionRefusedError) else Cause.UNREACHABLE
        case aiohttp.ClientPayloadError() | aiohttp.ServerDisconnectedError() | aiohttp.ClientOSError() | OSError():
            return Cause.CUT_OFF
        case aiohttp.InvalidURL():
            return Cause.BAD_URL
        case _:
            return Cause.BAD_HTTP


class _JudgedResolver(AbstractResolver):
    """What aiohttp asks for each new connection to a name: only addresses that may be connected to."""

    def __init__(self, resolve: Resolve, allow: EngineAllow) -> None:
        self._resolve = resolve
        self._allow = allow

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        try:
            found = await self._resolve(host)
        except LookupFailed as error:
            raise PollFailed(Cause.UNRESOLVED, f"{host}: {error}") from error
        if not found:
            raise PollFailed(Cause.UNRESOLVED, f"{host} has no address")
        allowed = [address for address in found if self._allow.allows(address, host)]
        if not allowed:
            raise PollFailed(Cause.FORBIDDEN, f"{host} is {found[0]}, which is not in --engine-allow")
        return [_result(host, port, address) for address in allowed]

    async def close(self) -> None:
        """Holds nothing."""


def _result(host: str, port: int, address: IPAddress) -> ResolveResult:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return ResolveResult(hostname=host, host=str(address), port=port, family=family, proto=0, flags=flags)
