"""Fetching one page, from engines that behave and engines that do not."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.signals_polling.harness import Names, RawAnswer, engine, let_run, raw_server, soon
from tidegate.clock import ManualClock
from tidegate.policy.engines import engines
from tidegate.signals.allow import ENGINE_ALLOW, EngineAllow, engine_allow
from tidegate.signals.causes import Cause, PollFailed
from tidegate.signals.fetch import DEADLINE_S, PAGE_BYTES_MAX, Fetcher
from tidegate.sim.processes import free_ports


@asynccontextmanager
async def fetching(
    names: Names | None = None, *, allow: str = ENGINE_ALLOW
) -> AsyncIterator[tuple[Fetcher, ManualClock]]:
    """A fetcher and its clock."""
    clock = ManualClock()
    fetcher = Fetcher(engine_allow(allow), Names() if names is None else names, clock)
    try:
        yield fetcher, clock
    finally:
        await fetcher.close()


async def cause_of(fetch: Awaitable[bytes]) -> Cause:
    """The cause of a fetch that must fail."""
    with pytest.raises(PollFailed) as failed:
        await soon(fetch)
    return failed.value.cause


def says(*parts: bytes) -> RawAnswer:
    """Writes these bytes and closes."""

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.writelines(parts)
        await writer.drain()

    return answer


async def test_a_page_is_fetched_over_a_connection_that_is_kept() -> None:
    """Ten polls of one engine give its page ten times and connect once."""
    async with engine() as serving, fetching() as (fetcher, _):
        for _ in range(10):
            assert await soon(fetcher.fetch(f"http://127.0.0.1:{serving.port}/metrics")) == b"running 1\n"
        assert len(serving.peers) == 1


async def test_an_ipv6_engine_is_fetched() -> None:
    """An address in brackets is an address."""
    async with engine(host="::1") as serving, fetching() as (fetcher, _):
        assert await soon(fetcher.fetch(f"http://[::1]:{serving.port}/metrics")) == b"running 1\n"


@pytest.mark.parametrize(
    ("status", "cause"),
    [(500, Cause.STATUS), (503, Cause.STATUS), (404, Cause.STATUS), (204, Cause.STATUS), (206, Cause.STATUS)],
)
async def test_another_status_than_200_is_a_failure(status: int, cause: Cause) -> None:
    """Only a 200 is a page; the failure carries the status, and the next fetch works."""
    async with engine() as serving, fetching() as (fetcher, _):
        serving.answer = serving.status(status)
        with pytest.raises(PollFailed, match=str(status)) as failed:
            await soon(fetcher.fetch(f"http://127.0.0.1:{serving.port}/metrics"))
        assert (failed.value.cause, failed.value.status) == (cause, status)
        serving.answer = serving.reading(3)
        assert await soon(fetcher.fetch(f"http://127.0.0.1:{serving.port}/metrics")) == b"running 3\n"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(status: int) -> None:
    """A page that points elsewhere is a failure, and nothing else is asked for."""
    async with engine() as serving, fetching() as (fetcher, _):
        serving.answer = serving.status(status)
        assert await cause_of(fetcher.fetch(f"http://127.0.0.1:{serving.port}/metrics")) is Cause.REDIRECT
        assert dict(serving.requests) == {"/metrics": 1}


async def test_nobody_listens() -> None:
    """A port that nobody listens on is told as refused."""
    (port,) = free_ports(1)
    async with fetching() as (fetcher, _):
        assert await cause_of(fetcher.fetch(f"http://127.0.0.1:{port}/metrics")) is Cause.REFUSED


async def test_a_late_page_ends_at_the_deadline_and_not_before() -> None:
    """A page that does not come is given up after two seconds of the clock, and its connection is closed."""
    async with engine() as serving, fetching() as (fetcher, clock):
        serving.answer = serving.hanging()
        fetch = asyncio.create_task(fetcher.fetch(f"http://127.0.0.1:{serving.port}/metrics"))
        await soon(serving.asked.get())
        clock.advance(DEADLINE_S - 0.001)
        await let_run()
        assert not fetch.done()
        clock.advance(0.001)
        with pytest.raises(PollFailed, match="not within 2 s") as failed:
            await soon(fetch)
        assert failed.value.cause is Cause.TIMEOUT
        serving.answer = serving.reading(1)
        assert await soon(fetcher.fetch(f"http://127.0.0.1:{serving.port}/metrics")) == b"running 1\n"
        assert len(serving.peers) == 2


async def test_a_page_that_trickles_ends_at_the_deadline() -> None:
    """A byte now and then buys no more time."""
    trickles = asyncio.Event()

    async def trickle(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            trickles.set()
            await asyncio.sleep(0)

    async with raw_server(trickle) as port, fetching() as (fetcher, clock):
        fetch = asyncio.create_task(fetcher.fetch(f"http://127.0.0.1:{port}/", wait_s=0.5))
        await soon(trickles.wait())
        clock.advance(0.5)
        assert await cause_of(fetch) is Cause.TIMEOUT


async def test_a_cancelled_fetch_is_cancelled() -> None:
    """Cancellation from outside is no timeout, even in the moment of the deadline."""
    async with engine() as serving, fetching() as (fetcher, clock):
        serving.answer = serving.hanging()
        fetch = asyncio.create_task(fetcher.fetch(f"http://127.0.0.1:{serving.port}/metrics"))
        await soon(serving.asked.get())
        fetch.cancel()
        clock.advance(DEADLINE_S)
        with pytest.raises(asyncio.CancelledError):
            await soon(fetch)


async def test_a_page_whose_length_is_too_large_is_not_read() -> None:
    """20 MB that are announced are refused before the first byte of them comes."""

    async def announce(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 20000000\r\n\r\n")
        await reader.read()

    async with raw_server(announce) as port, fetching() as (fetcher, _):
        assert await cause_of(fetcher.fetch(f"http://127.0.0.1:{port}/metrics")) is Cause.TOO_LARGE


async def test_reading_stops_where_a_page_becomes_too_large() -> None:
    """Of a page without end no more is taken than a page may have and what sockets hold."""
    sent_bytes = 0
    gone = asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent_bytes
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(bytes(65_536))
                sent_bytes += 65_536
        finally:
            gone.set()

    async with engine() as serving, fetching() as (fetcher, _):
        serving.answer = endless
        assert await cause_of(fetcher.fetch(f"http://127.0.0.1:{serving.port}/metrics")) is Cause.TOO_LARGE
        await soon(gone.wait())
        assert PAGE_BYTES_MAX <= sent_bytes < 20_000_000


async def test_the_largest_page_is_read() -> None:
    """A page of exactly the limit is a page."""
    async with engine() as serving, fetching() as (fetcher, _):

        async def large(_request: web.Request) -> web.StreamResponse:
            return web.Response(body=bytes(PAGE_BYTES_MAX))

        serving.answer = large
        assert len(await soon(fetcher.fetch(f"http://127.0.0.1:{serving.port}/metrics"))) == PAGE_BYTES_MAX


@pytest.mark.parametrize(
    ("parts", "cause"),
    [
        ((b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nrunning 1",), Cause.CUT_OFF),
        ((b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nrunni",), Cause.CUT_OFF),
        ((b"",), Cause.CUT_OFF),
        ((b"HTTP/1.1 200",), Cause.CUT_OFF),
        ((b"SSH-2.0-OpenSSH\r\n\r\n",), Cause.BAD_HTTP),
        ((b"HTTP/1.1 200 OK\r\n" + b"x: " + b"y" * 100_000 + b"\r\n\r\n",), Cause.BAD_HTTP),
    ],
)
async def test_what_is_not_a_whole_http_response(parts: tuple[bytes, ...], cause: Cause) -> None:
    """Responses that end early and bytes that are none give their cause, and nothing else."""
    async with raw_server(says(*parts)) as port, fetching() as (fetcher, _):
        assert await cause_of(fetcher.fetch(f"http://127.0.0.1:{port}/metrics")) is cause


async def test_chunks_that_are_none() -> None:
    """A body that is not what its header says it is fails, as cut off or as no HTTP, as its bytes happen to arrive."""
    response = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nrunning"
    async with raw_server(says(response)) as port, fetching() as (fetcher, _):
        assert await cause_of(fetcher.fetch(f"http://127.0.0.1:{port}/metrics")) in {Cause.CUT_OFF, Cause.BAD_HTTP}


async def test_compression_is_not_taken() -> None:
    """Plain is asked for, and a server that compresses all the same cannot make us inflate its page."""
    async with engine() as serving, fetching() as (fetcher, _):
        asked_for: list[str] = []

        async def bomb(request: web.Request) -> web.StreamResponse:
            asked_for.append(request.headers["accept-encoding"])
            return web.Response(body=gzip.compress(bytes(50_000_000)), headers={"content-encoding": "gzip"})

        serving.answer = bomb
        assert await cause_of(fetcher.fetch(f"http://127.0.0.1:{serving.port}/metrics")) is Cause.BAD_HTTP
        assert asked_for == ["identity"]


async def test_a_server_without_tls() -> None:
    """An https page of a server that speaks plain HTTP is told as a fault of TLS."""
    async with engine() as serving, fetching() as (fetcher, _):
        assert await cause_of(fetcher.fetch(f"https://127.0.0.1:{serving.port}/metrics")) is Cause.TLS


async def test_cookies_are_not_kept_and_proxies_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what an engine says nor what the environment says changes where and how the next page is asked for."""
    names = Names(**{"vllm.test": ("127.0.0.1",)})  # cookies of bare addresses would not be kept anyway
    async with engine() as serving, engine() as proxy, fetching(names) as (fetcher, _):
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        cookies: list[str | None] = []

        async def sets_cookie(request: web.Request) -> web.StreamResponse:
            cookies.append(request.headers.get("cookie"))
            return web.Response(headers={"set-cookie": "taste=sweet"})

        serving.answer = sets_cookie
        for _ in range(2):
            await soon(fetcher.fetch(f"http://vllm.test:{serving.port}/metrics"))
        assert cookies == [None, None]
        assert not proxy.requests


async def test_the_name_goes_into_the_host_header() -> None:
    """Whether the URL has the name or the address that it was resolved from, the engine is asked by its name."""
    names = Names(**{"vllm.test": ("127.0.0.1",)})
    async with engine() as serving, fetching(names) as (fetcher, _):
        await soon(fetcher.fetch(f"http://vllm.test:{serving.port}/metrics"))
        await soon(fetcher.fetch(f"http://127.0.0.1:{serving.port}/metrics", name="vllm.test"))
        assert serving.hosts == [f"vllm.test:{serving.port}"] * 2


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "8.8.8.8", "[::ffff:169.254.169.254]", "[fe80::1]", "[::ffff:127.0.0.1]", "127.0.0.1"]
)
async def test_a_forbidden_address_is_not_connected_to(host: str) -> None:
    """An address outside the list is refused before anything is sent."""
    async with engine() as serving, fetching(allow="10.0.0.0/8") as (fetcher, _):
        assert await cause_of(fetcher.fetch(f"http://{host}:{serving.port}/metrics")) is Cause.FORBIDDEN
        assert not serving.requests


@pytest.mark.parametrize("host", ["2130706433", "127.1", "0177.0.0.1", "1.2.3.4.5", "[::1::]"])
async def test_numbers_that_some_take_for_addresses(host: str) -> None:
    """What is not an address as it is printed is not passed on to whoever might see one in it."""
    async with fetching() as (fetcher, _):
        assert await cause_of(fetcher.fetch(f"http://{host}:80/metrics")) is Cause.BAD_URL


async def test_names_are_judged_by_the_addresses_they_resolve_to() -> None:
    """Of a name's addresses only those allowed are connected to; with none allowed, none is."""
    names = Names(**{"both.test": ("8.8.8.8", "127.0.0.1"), "out.test": ("127.0.0.2", "8.8.8.8"), "dead.test": None})
    async with engine() as serving, fetching(names, allow="127.0.0.1") as (fetcher, _):
        assert await soon(fetcher.fetch(f"http://both.test:{serving.port}/metrics")) == b"running 1\n"
        assert await cause_of(fetcher.fetch(f"http://out.test:{serving.port}/metrics")) is Cause.FORBIDDEN
        assert await cause_of(fetcher.fetch(f"http://none.test:{serving.port}/metrics")) is Cause.UNRESOLVED
        assert await cause_of(fetcher.fetch(f"http://dead.test:{serving.port}/metrics")) is Cause.UNRESOLVED


async def test_a_name_that_is_pointed_elsewhere_later_gains_nothing() -> None:
    """DNS rebinding: the address that is connected to is the one that was judged, at each new connection again."""
    names = Names(**{"vllm.test": ("127.0.0.1",)})
    async with engine() as serving, fetching(names, allow="127.0.0.1") as (fetcher, _):
        url = f"http://vllm.test:{serving.port}/metrics"

        async def closes(_request: web.Request) -> web.StreamResponse:
            return web.Response(headers={"connection": "close"})

        serving.answer = closes
        await soon(fetcher.fetch(url))
        async with engine(host="127.0.0.2", port=serving.port) as other:
            names.answers["vllm.test"] = ("127.0.0.2",)
            assert await cause_of(fetcher.fetch(url)) is Cause.FORBIDDEN
            assert not other.requests
        assert names.asked.qsize() == 2  # once a connection: there is no second lookup behind the one that was judged


async def test_a_suffix_lets_any_address_of_its_names_pass() -> None:
    """A trusted zone may have addresses that are not listed; another zone with the same address may not."""
    names = Names(**{"vllm.svc.test": ("127.0.0.1",), "vllm.evil": ("127.0.0.1",)})
    async with engine() as serving, fetching(names, allow=".svc.test") as (fetcher, _):
        assert await soon(fetcher.fetch(f"http://vllm.svc.test:{serving.port}/metrics")) == b"running 1\n"
        assert await cause_of(fetcher.fetch(f"http://vllm.evil:{serving.port}/metrics")) is Cause.FORBIDDEN
        url = f"http://127.0.0.1:{serving.port}/metrics"
        assert await soon(fetcher.fetch(url, name="vllm.svc.test")) == b"running 1\n"
        assert await cause_of(fetcher.fetch(url)) is Cause.FORBIDDEN


urls = st.from_regex(r"https?://[A-Za-z0-9_.:\[\]-]+(/[!-+\--:<-~]*)?", fullmatch=True)


@given(urls)
def test_any_url_of_a_policy_fails_tidily_where_nothing_is_allowed(url: str) -> None:
    """With nothing allowed and no names, whatever a policy may say gives a PollFailed that says what is wrong."""
    try:
        (named,) = engines(f"vllm:8000;metrics={url}")
    except ValueError:
        return

    async def fetch() -> Cause:
        fetcher = Fetcher(EngineAllow(()), Names(), ManualClock())
        try:
            return await cause_of(fetcher.fetch(named.metrics))
        finally:
            await fetcher.close()

    assert asyncio.run(fetch()) in {Cause.BAD_URL, Cause.FORBIDDEN, Cause.UNRESOLVED}
