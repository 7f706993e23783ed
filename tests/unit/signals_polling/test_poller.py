"""The engines of a pool, polled over real HTTP: what is told, and when."""

import asyncio
from ipaddress import ip_address

import pytest
from aiohttp import web

from tests.unit.signals_polling.harness import (
    Engine,
    Names,
    RunningReader,
    Site,
    engine,
    let_run,
    page_of,
    raw_server,
    site,
    soon,
)
from tidegate.admission.reading import EngineReading
from tidegate.policy import EngineAddress
from tidegate.policy.engines import engines
from tidegate.signals.allow import IPAddress
from tidegate.signals.budget import IN_FLIGHT_MAX
from tidegate.signals.causes import Cause
from tidegate.signals.fetch import DEADLINE_S
from tidegate.signals.pace import BACK_OFF_S_MAX
from tidegate.signals.poll_tally import READ
from tidegate.sim.processes import free_ports

PERIOD_S_MAX = 1.1


async def reading_of(pool: Site, serving: Engine) -> int | None:
    """The next thing told is a reading of this engine; its running sequences."""
    told, address, reading = await pool.heard.next()
    assert (told, address) == ("reading", serving.address.address)
    assert isinstance(reading, EngineReading)
    return reading.running


async def failure_of(pool: Site) -> object:
    """The next thing told is a failure; its cause."""
    told, _, cause = await pool.heard.next()
    assert told == "failure"
    return cause


async def begun(pool: Site, serving: Engine) -> None:
    """The engine alone is polled, and has been read once."""
    await pool.start(serving.address)
    assert await pool.heard.next() == ("engines", (serving.address.address,))
    assert await reading_of(pool, serving) == 1
    await soon(serving.asked.get())


async def test_engines_are_told_and_then_read() -> None:
    """The set is told first, then a reading of each engine, which is kept with its age."""
    async with engine() as one, engine() as two, site() as pool:
        two.answer = two.reading(2)
        await pool.start(one.address, two.address)
        addresses = (one.address.address, two.address.address)
        assert await pool.heard.next() == ("engines", addresses)
        told = {(await pool.heard.next())[1:] for _ in range(2)}
        readings = (EngineReading(running=1), EngineReading(running=2))
        assert told == set(zip(addresses, readings, strict=True))
        now_s = pool.clock.now_s()
        for address, reading in zip(addresses, readings, strict=True):
            assert pool.poller.reading(address) == reading
            assert pool.poller.age_s(address, now_s + 7.0) == pytest.approx(7.0, abs=0.01)
        assert pool.poller.tally.polls[READ] == 2
        assert pool.poller.age_s("10.0.0.1:1", now_s) is None
        assert pool.poller.reading("10.0.0.1:1") is None


async def test_an_engine_is_polled_about_every_second() -> None:
    """From the second poll on, the next begins after 0.9 to 1.1 s, over the same connection."""
    async with engine() as serving, site() as pool:
        await begun(pool, serving)
        await pool.pass_s(PERIOD_S_MAX)
        assert await reading_of(pool, serving) == 1
        for running in range(20):
            serving.answer = serving.reading(running)
            await pool.pass_s(0.89)
            ready = pool.shared.fetcher.fetch(f"http://{serving.address.address}/health")
            await soon(ready)  # whatever was sent before has arrived by now
            assert serving.requests["/metrics"] == running + 2
            await pool.pass_s(0.21)
            assert await reading_of(pool, serving) == running
        assert len(serving.peers) <= 2


@pytest.mark.parametrize("outage_s", [1.0, 10.0, 300.0])
async def test_a_late_page(outage_s: float) -> None:
    """While pages do not come an engine fails at each deadline; the first page that comes is read within 4 s."""
    async with engine() as serving, site() as pool:
        await begun(pool, serving)
        serving.answer = serving.hanging()
        begin_s = pool.clock.now_s()
        await pool.pass_s(PERIOD_S_MAX)
        while True:
            await soon(serving.asked.get())
            pool.clock.advance(DEADLINE_S)
            assert await failure_of(pool) is Cause.TIMEOUT
            if pool.clock.now_s() - begin_s >= outage_s:
                break
            await pool.pass_s(BACK_OFF_S_MAX - DEADLINE_S)
        address = serving.address.address
        now_s = pool.clock.now_s()
        assert pool.poller.age_s(address, now_s) == pytest.approx(now_s - begin_s, abs=0.01)
        assert pool.poller.stale(now_s) == ([address] if now_s - begin_s >= 5.0 else [])
        serving.answer = serving.reading(2)
        await pool.pass_s(BACK_OFF_S_MAX - DEADLINE_S)
        assert await reading_of(pool, serving) == 2
        assert pool.poller.stale(pool.clock.now_s()) == []
        assert serving.under_way_max == 1
        await pool.pass_s(PERIOD_S_MAX)
        assert await reading_of(pool, serving) == 2


async def test_one_late_page_does_not_make_an_engine_stale() -> None:
    """The next good page is read before the reading is old enough to count as stale."""
    async with engine() as serving, site() as pool:
        await begun(pool, serving)
        serving.answer = serving.hanging()
        await pool.pass_s(PERIOD_S_MAX)
        await soon(serving.asked.get())
        serving.answer = serving.reading(2)
        pool.clock.advance(DEADLINE_S)
        assert await failure_of(pool) is Cause.TIMEOUT
        await pool.pass_s(0.1)
        assert pool.poller.stale(pool.clock.now_s()) == []
        assert await reading_of(pool, serving) == 2


@pytest.mark.parametrize("status", [500, 404, 503])
async def test_a_long_outage_with_an_answer(status: int) -> None:
    """An engine whose page is an error for minutes is asked at least every 4 s, and read as soon as it recovers."""
    async with engine() as serving, site() as pool:
        await begun(pool, serving)
        serving.answer = serving.status(status)
        for _ in range(50):
            await pool.pass_s(BACK_OFF_S_MAX)
            assert await failure_of(pool) is Cause.STATUS
        assert pool.poller.tally.polls[Cause.STATUS] == 50
        serving.answer = serving.reading(2)
        await pool.pass_s(BACK_OFF_S_MAX)
        assert await reading_of(pool, serving) == 2


async def test_what_is_no_page_of_its_kind() -> None:
    """A page that lacks what it must have, one too large, a redirect, a reader's fault: each is told by its cause."""

    async def half(_request: web.Request) -> web.StreamResponse:
        return web.Response(text="walking 1\n")

    async def large(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=bytes(20_000_000))

    async def faulty(_request: web.Request) -> web.StreamResponse:
        return web.Response(text="running fast\n")

    async with engine() as serving, site() as pool:
        await begun(pool, serving)
        for answer, cause in (
            (half, Cause.HALF_PAGE),
            (large, Cause.TOO_LARGE),
            (serving.status(302), Cause.REDIRECT),
            (faulty, Cause.FAULT),
        ):
            serving.answer = answer
            await pool.pass_s(BACK_OFF_S_MAX)
            assert await failure_of(pool) is cause
        serving.answer = serving.reading(2)
        await pool.pass_s(BACK_OFF_S_MAX)
        assert await reading_of(pool, serving) == 2


async def test_half_a_response_and_nobody_there() -> None:
    """A connection that ends in the middle and a port that nobody listens on are failures of their engines alone."""

    async def half(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nrunning 1")

    (nobody,) = free_ports(1)
    async with raw_server(half) as port, engine() as serving, site() as pool:
        await pool.start(*engines(f"127.0.0.1:{port},127.0.0.1:{nobody}"), serving.address)
        await pool.heard.next()
        told = {(await pool.heard.next())[1:] for _ in range(3)}
        assert told == {
            (f"127.0.0.1:{port}", Cause.CUT_OFF),
            (f"127.0.0.1:{nobody}", Cause.REFUSED),
            (serving.address.address, EngineReading(running=1)),
        }


async def test_a_forbidden_page_is_not_asked_for() -> None:
    """Where a policy aims at an address outside `--engine-allow`, the failure says so and nothing is sent."""
    async with engine() as victim, engine() as serving, site(allow="127.0.0.1") as pool:
        aimed = f"127.0.0.1:{serving.port};metrics=http://127.0.0.2:{victim.port}/metrics"
        await pool.start(*engines(aimed))
        await pool.heard.next()
        assert await pool.heard.next() == ("failure", serving.address.address, Cause.FORBIDDEN)
        assert not victim.requests


async def test_a_large_page_is_read_beside_the_event_loop() -> None:
    """A page that takes long to read is read all the same."""

    async def padded(_request: web.Request) -> web.StreamResponse:
        return web.Response(text="running 5" + " " * 1_000_000)

    async with engine() as serving, site() as pool:
        serving.answer = padded
        await pool.start(serving.address)
        await pool.heard.next()
        assert await reading_of(pool, serving) == 5


async def test_what_cannot_be_is_left_out_of_a_reading() -> None:
    """Figures out of their bounds are None by the time they are told."""
    async with engine() as serving, site() as pool:
        serving.answer = serving.reading(-3)
        await pool.start(serving.address)
        await pool.heard.next()
        assert await reading_of(pool, serving) is None


async def test_an_engine_that_says_it_is_not_ready() -> None:
    """A 503 of the readiness page makes readings not ready from the next look on, and a 200 ready again at once."""
    async with engine() as serving, site() as pool:
        await begun(pool, serving)
        serving.ready_status = 503
        ready = []
        for _ in range(6):
            await pool.pass_s(PERIOD_S_MAX)
            reading = (await pool.heard.next())[2]
            assert isinstance(reading, EngineReading)
            ready.append(reading.ready)
        assert ready == [True] * 4 + [False] * 2
        serving.ready_status = 200
        await pool.pass_s(PERIOD_S_MAX)
        assert (await pool.heard.next())[2] == EngineReading(running=1, ready=True)


async def test_an_engine_without_a_page_that_says_it_is_not_ready() -> None:
    """An engine that answers both pages with 503 has said something: it is not ready."""
    async with engine() as serving, site() as pool:
        serving.answer, serving.ready_status = serving.status(503), 503
        await pool.start(serving.address)
        await pool.heard.next()
        assert await pool.heard.next() == ("reading", serving.address.address, EngineReading(ready=False))
        serving.answer, serving.ready_status = serving.reading(1), 200
        await pool.pass_s(PERIOD_S_MAX)
        assert await reading_of(pool, serving) == 1


@pytest.mark.parametrize("status", [404, 401, 500, 302])
async def test_a_readiness_page_that_says_nothing(status: int) -> None:
    """Only a 503 is a word about readiness: an engine without such a page is ready."""
    async with engine() as serving, site() as pool:
        serving.ready_status = status
        await pool.start(serving.address)
        await pool.heard.next()
        assert await pool.heard.next() == ("reading", serving.address.address, EngineReading(running=1))
        assert serving.requests["/health"] == 1


async def test_a_kind_without_a_readiness_page() -> None:
    """Engines behind a proxy of their own are not asked whether they are ready: the proxy would answer for itself."""

    class ProxiedReader(RunningReader):
        kind = "ray-serve"

    async with engine() as serving, site() as pool:
        pool.poller.reconfigure((serving.address,), ProxiedReader())
        await pool.pass_s(0.1)
        await pool.heard.next()
        assert await reading_of(pool, serving) == 1
        assert set(serving.requests) == {"/metrics"}


async def test_an_engine_that_goes_while_it_is_polled() -> None:
    """Once the pool has let go of an engine, the poll under way is given up and tells nothing."""
    async with engine() as one, engine() as two, site() as pool:
        end, left = asyncio.Event(), asyncio.Event()

        async def held(_request: web.Request) -> web.StreamResponse:
            try:
                await end.wait()
                return page_of(9)
            finally:
                left.set()

        one.answer = held
        await pool.start(one.address, two.address)
        await pool.heard.next()
        await soon(one.asked.get())
        assert await reading_of(pool, two) == 1
        pool.poller.reconfigure((two.address,), RunningReader())
        assert await pool.heard.next() == ("engines", (two.address.address,))
        await soon(left.wait())
        end.set()
        await pool.pass_s(PERIOD_S_MAX)
        assert await reading_of(pool, two) == 1
        assert pool.poller.reading(one.address.address) is None
        assert pool.poller.stale(pool.clock.now_s(), after_s=0.0) == [two.address.address]


async def test_stopped_while_polls_are_under_way() -> None:
    """Nothing is told after the stop, nothing is left running, and engines see the connection close."""
    before = asyncio.all_tasks()
    async with engine() as serving:
        pool = Site()
        serving.answer = serving.hanging()
        await pool.start(serving.address)
        await pool.heard.next()
        await soon(serving.asked.get())
        pool.poller.stop()
        pool.poller.stop()
        await soon(pool.poller.wait_closed())
        names = {task.get_name() for task in asyncio.all_tasks() - before}
        assert not any(name.startswith("poll") for name in names)
        pool.clock.advance(60.0)
        await let_run()
        assert pool.heard.events.empty()
        assert pool.poller.stale(pool.clock.now_s()) == []
        await pool.shared.close()


async def test_started_again_after_a_stop() -> None:
    """A poller that was stopped begins anew, with the set told first."""
    async with engine() as serving, site() as pool:
        await begun(pool, serving)
        pool.poller.stop()
        await soon(pool.poller.wait_closed())
        await begun(pool, serving)


async def test_the_reader_changes_under_the_same_engines() -> None:
    """Another reader reads from the next poll on, no set is told, and without a reader nothing is polled."""

    class WaitingReader(RunningReader):
        def read(self, page: bytes) -> EngineReading:
            return EngineReading(waiting=super().read(page).running)

    async with engine() as serving, site() as pool:
        await begun(pool, serving)
        pool.poller.reconfigure((serving.address,), WaitingReader())
        assert pool.poller.reading(serving.address.address) == EngineReading(running=1)
        await pool.pass_s(PERIOD_S_MAX)
        assert await pool.heard.next() == ("reading", serving.address.address, EngineReading(waiting=1))
        pool.poller.reconfigure((serving.address,), None)
        asked = serving.requests["/metrics"]
        await pool.pass_s(60.0)
        assert serving.requests["/metrics"] == asked
        assert pool.heard.events.empty()
        pool.poller.reconfigure((serving.address,), RunningReader())
        await pool.pass_s(0.1)
        assert await reading_of(pool, serving) == 1


async def test_the_page_moves_under_the_same_engine() -> None:
    """Where the policy names another URL for an engine's page, that page is read, and the set is still the same."""
    async with engine() as serving, engine() as exporter, site() as pool:
        await begun(pool, serving)
        exporter.answer = exporter.reading(7)
        await pool.start(*engines(f"{serving.address.address};metrics=http://127.0.0.1:{exporter.port}/m"))
        assert await reading_of(pool, serving) == 7
        assert serving.requests["/metrics"] == 1


async def test_a_cancellation_that_is_swallowed() -> None:
    """Where something on the way takes no notice that an engine was let go, its poll tells nothing, and is over."""
    asked = asyncio.Event()

    async def stubborn(_name: str) -> tuple[IPAddress, ...]:
        asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return (ip_address("127.0.0.1"),)
        raise AssertionError

    async with engine() as serving, site(stubborn) as pool:
        await pool.start(*engines(f"vllm.test:{serving.port}"))
        await pool.heard.next()
        await soon(asked.wait())
        pool.poller.stop()
        await soon(pool.poller.wait_closed())
        assert serving.requests["/metrics"] == 1
        assert pool.heard.events.empty()


async def test_engines_that_hang_do_not_hold_up_one_that_answers() -> None:
    """With as many hung polls as may be under way, an engine that is well is read every second."""
    async with engine() as serving, engine() as hung, site() as pool:
        hung.answer = hung.status(500)
        crowd = [
            EngineAddress(address=f"127.1.0.{i}:1", metrics=f"http://127.0.0.1:{hung.port}/metrics?{i}")
            for i in range(IN_FLIGHT_MAX)
        ]
        await pool.start(serving.address, *crowd)
        told = [str((await pool.heard.next())[0]) for _ in range(2 + IN_FLIGHT_MAX)]
        assert sorted(told) == ["engines", *["failure"] * IN_FLIGHT_MAX, "reading"]
        hung.answer = hung.hanging()
        await pool.pass_s(1.0)
        await pool.pass_s(0.2)
        assert await reading_of(pool, serving) == 1
        while hung.under_way < IN_FLIGHT_MAX:
            await soon(hung.asked.get())
        await pool.pass_s(PERIOD_S_MAX - 0.3)
        await pool.pass_s(0.3)
        assert await reading_of(pool, serving) == 1
        assert hung.under_way == IN_FLIGHT_MAX


async def test_a_page_that_is_long_to_read_is_polled_less_often() -> None:
    """Reading takes a fifth of the event loop at most: 0.4 s of it are 2 s without a poll."""
    async with engine() as serving, site() as pool:

        class SlowReader(RunningReader):
            def read(self, page: bytes) -> EngineReading:
                pool.clock.advance(0.4)
                return super().read(page)

        pool.poller.reconfigure((serving.address,), SlowReader())
        await pool.pass_s(0.1)
        await pool.heard.next()
        assert await reading_of(pool, serving) == 1
        await pool.pass_s(1.9)
        await soon(pool.shared.fetcher.fetch(f"http://{serving.address.address}/health"))
        assert serving.requests["/metrics"] == 1
        await pool.pass_s(0.2)
        assert await reading_of(pool, serving) == 1


async def test_without_engines_nothing_is_told() -> None:
    """Where a policy names no engine, nothing is known of them; named again, they are told again."""
    async with engine() as serving, site() as pool:
        await pool.start()
        assert pool.heard.events.empty()
        await begun(pool, serving)
        await pool.start()
        assert pool.heard.events.empty()
        await begun(pool, serving)


async def test_engines_that_dns_finds() -> None:
    """The addresses of a name are polled by their name; what the next answer lacks is let go."""
    names = Names(**{"vllm.test": ("127.0.0.1",)})
    async with engine() as serving, engine(host="127.0.0.2", port=serving.port) as other, site(names) as pool:
        other.answer = other.reading(2)
        address, port = serving.address.address, serving.port
        await pool.start(*engines(f"dns:vllm.test:{port}"))
        assert await pool.heard.next() == ("engines", (address,))
        assert await reading_of(pool, serving) == 1
        assert serving.hosts == [f"vllm.test:{port}"] * 2
        assert dict(serving.requests) == {"/metrics": 1, "/health": 1}
        names.answers["vllm.test"] = ("127.0.0.2",)
        told: list[tuple[object, ...]] = []
        while ("engines", (f"127.0.0.2:{port}",)) not in told:
            await pool.pass_s(PERIOD_S_MAX)
            while not pool.heard.events.empty():
                told.append(pool.heard.events.get_nowait())
        while ("reading", f"127.0.0.2:{port}", EngineReading(running=2)) not in told:
            await pool.pass_s(0.1)
            told.append(await pool.heard.next())
        assert not any(event[1] == address for event in told[told.index(("engines", (f"127.0.0.2:{port}",))) :])


async def test_no_engine_until_one_appears() -> None:
    """A name without addresses is told as no engine, and the first that appears is polled within two seconds."""
    names = Names()
    async with engine() as serving, site(names) as pool:
        await pool.start(*engines(f"dns:vllm.test:{serving.port}"))
        assert await pool.heard.next() == ("engines", ())
        await pool.pass_s(3.0)
        names.answers["vllm.test"] = ("127.0.0.1",)
        await pool.pass_s(1.2)
        assert await pool.heard.next() == ("engines", (serving.address.address,))
        await pool.pass_s(0.1)
        assert await reading_of(pool, serving) == 1


async def test_a_listener_that_fails_does_not_end_the_polls(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever a listener raises is counted and logged once; engines are found and polled as before."""
    async with engine() as serving, site() as pool:
        pool.heard.fault = RuntimeError("a bug")
        await begun(pool, serving)
        for _ in range(3):
            await pool.pass_s(PERIOD_S_MAX)
            assert await reading_of(pool, serving) == 1
        assert pool.poller.tally.polls[Cause.FAULT] == 5
        assert [record.levelname for record in caplog.records] == ["ERROR"]


async def test_the_log_says_little_and_enough(caplog: pytest.LogCaptureFixture) -> None:
    """Engines that fail give one line a minute for the pool, with how many they are and why the last one failed."""
    async with engine() as serving, site() as pool:
        await begun(pool, serving)
        serving.answer = serving.status(500)
        for _ in range(30):
            await pool.pass_s(BACK_OFF_S_MAX)
            assert await failure_of(pool) is Cause.STATUS
        lines = [record.getMessage() for record in caplog.records]
        assert set(lines) == {
            f"pool vllm: 1 of 1 engines cannot be read, last {serving.address.address} (status: HTTP 500)"
        }
        assert len(lines) == 2


async def test_an_engine_never_read_becomes_stale() -> None:
    """An engine counts as stale from the time it joined where it has never been read."""
    (nobody,) = free_ports(1)
    async with site() as pool:
        joined_s = pool.clock.now_s()
        await pool.start(EngineAddress(address=f"127.0.0.1:{nobody}"))
        await pool.heard.next()
        await pool.heard.next()
        assert pool.poller.stale(joined_s + 4.9) == []
        assert pool.poller.stale(joined_s + 5.0) == [f"127.0.0.1:{nobody}"]
        assert pool.poller.age_s(f"127.0.0.1:{nobody}", joined_s + 5.0) is None


async def test_many_engines_at_once() -> None:
    """A hundred engines that begin together are all read, and none fails for the crowd."""
    async with engine() as serving, site() as pool:
        crowd = [
            EngineAddress(address=f"127.1.0.{i}:1", metrics=f"http://127.0.0.1:{serving.port}/metrics?{i}")
            for i in range(100)
        ]
        await pool.start(*crowd)
        assert await pool.heard.next() == ("engines", tuple(each.address for each in crowd))
        read: set[object] = set()
        while len(read) < 100:
            told, address, _ = await pool.heard.next()
            assert told == "reading"
            read.add(address)
            await pool.pass_s(0.001)
