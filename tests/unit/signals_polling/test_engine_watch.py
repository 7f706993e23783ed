"""From what is found and read of engines to the controller of their pool."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

from tests.unit.admission.builders import patient
from tests.unit.signals_polling.harness import Names, engine, let_run, soon
from tidegate.admission.controller import Controller
from tidegate.admission.decision import Admit, Verdict
from tidegate.admission.reading import EngineReading
from tidegate.clock import ManualClock
from tidegate.policy import PoolPolicy, parse_policy
from tidegate.signals.allow import ENGINE_ALLOW, engine_allow
from tidegate.signals.causes import Cause
from tidegate.signals.engine_watch import EngineWatch
from tidegate.signals.polling import Polling
from tidegate.turnstile import Passage, Turnstile

ROOM_FOR_TWO = {"tidegate-slots-max": "1", "tidegate-queue-len-max": "2", "tidegate-mode": "backpressure-first"}
MAPPING = {"tidegate-engine": "prometheus", "tidegate-engine-metrics": "running=running"}


def policy_of(engines: str | None, **keys: str) -> PoolPolicy:
    pairs = {name.replace("_", "-"): value for name, value in keys.items()}
    if engines is not None:
        pairs["tidegate-engines"] = engines
    return parse_policy(pairs.items(), default_pool="vllm").pool


class Pool:
    """A controller at its full limits with its watch, and DNS that the test writes."""

    def __init__(self, policy: PoolPolicy, names: Names) -> None:
        self.clock = ManualClock()
        self.controller = Controller(
            policy.limits,
            engines=policy.engine_count,
            names=policy.steered,
            now_s=self.clock.now_s(),
            ramp=False,
        )
        self.turnstile = Turnstile(self.controller, self.clock)
        self.polling = Polling.of(engine_allow(ENGINE_ALLOW), self.clock, rng=Random(7), resolve=names)
        self.watch = EngineWatch(policy, self.turnstile, self.polling)

    @property
    def engines(self) -> list[str]:
        """Those that readings are expected of."""
        return [address for address, _, _ in self.controller.readings(self.clock.now_s())]

    @property
    def slots(self) -> int:
        return self.controller.snapshot(self.clock.now_s()).sequences_max

    @property
    def width(self) -> int:
        return self.controller.snapshot(self.clock.now_s()).engines

    def follow(self, policy: PoolPolicy) -> None:
        self.watch.follow(policy, self.clock.now_s())

    def enter(self, work_id: str, hold_s: float = 3600.0) -> Passage:
        return self.turnstile.enter(patient(work_id, hold_s_max=hold_s))

    async def pass_s(self, seconds: float) -> None:
        """Time passes in steps, and whatever is due begins."""
        for _ in range(round(seconds * 10.0)):
            await let_run()
            self.clock.advance(0.1)
        await let_run()

    async def until_read(self, reads: int) -> None:
        """Time passes until so many pages have been read in all."""

        async def read() -> None:
            while self.watch.poller.tally.polls["read"] < reads:
                await self.pass_s(0.1)

        await soon(read())


@asynccontextmanager
async def watched(policy: PoolPolicy, names: Names | None = None) -> AsyncIterator[Pool]:
    pool = Pool(policy, Names() if names is None else names)
    try:
        await let_run()
        yield pool
    finally:
        pool.watch.stop()
        await soon(pool.watch.wait_closed())
        await pool.polling.close()


def verdict(passage: Passage) -> Verdict | None:
    """The verdict that a request which waits has got, if it has."""
    assert passage.late is not None
    return passage.late.result() if passage.late.done() else None


async def test_without_a_reason_nobody_is_asked() -> None:
    """Addresses without a kind, and a kind without addresses, are what the policy says and nothing more."""
    for policy, width in ((policy_of("10.0.0.1:8000,10.0.0.2:8000"), 2), (policy_of(None, tidegate_engine="vllm"), 1)):
        async with watched(policy) as pool:
            assert (pool.engines, pool.width) == ([], width)
            await pool.pass_s(10.0)
            assert pool.controller.snapshot(pool.clock.now_s()).engines_stale == 0


async def test_a_page_reaches_the_controller() -> None:
    """What an engine says of its size is what the pool has, once it is read."""
    async with engine() as serving:
        mapping = MAPPING | {"tidegate-engine-metrics": "running=running;slots=running"}
        policy = policy_of(f"127.0.0.1:{serving.port}", **mapping)
        serving.answer = serving.reading(6)
        async with watched(policy) as pool:
            assert pool.engines == [f"127.0.0.1:{serving.port}"]
            await pool.until_read(1)
            assert pool.slots == 6
            await pool.until_read(3)
            assert pool.slots == 1  # all six sequences are of somebody else
            assert pool.controller.snapshot(pool.clock.now_s()).foreign == 6


async def test_an_empty_answer_of_dns_is_no_engine_and_never_429() -> None:
    """C5: no address; of three requests two wait and the third is a 503; an engine that appears after 3 s takes them
    in order, those that could wait so long.
    """
    names = Names(**{"vllm.ns.svc": ()})
    async with watched(policy_of("dns:vllm.ns.svc:8000", **ROOM_FOR_TWO), names) as pool:
        assert pool.width == 0
        first, second, third = (pool.enter(name, hold_s) for name, hold_s in (("1", 2.0), ("2", 10.0), ("3", 10.0)))
        assert getattr(third.decision, "status", None) == 503
        assert str(third.decision.reason.rule) == "no_engine"
        await pool.pass_s(2.1)
        gone = verdict(first)
        assert gone is not None
        assert (getattr(gone, "status", None), str(gone.reason.rule)) == (503, "no_engine")
        last = pool.enter("4", 10.0)
        names.answers["vllm.ns.svc"] = ("10.0.0.1",)
        await pool.pass_s(1.5)
        assert isinstance(verdict(second), Admit)
        assert verdict(last) is None
        pool.turnstile.leave(second)
        assert isinstance(verdict(last), Admit)


async def test_dns_finds_the_engines_of_a_steered_pool() -> None:
    """Before the first answer Envoy chooses; then each address has its book, one that leaves gets nothing more."""
    names = Names(**{"vllm.ns.svc": None})
    policy = policy_of("dns:vllm.ns.svc:8000", tidegate_steer="on", tidegate_slots_max="2")
    async with watched(policy, names) as pool:
        unnamed = pool.enter("0").decision
        assert isinstance(unnamed, Admit)
        assert unnamed.engine == ""
        names.answers["vllm.ns.svc"] = ("10.0.0.1", "10.0.0.2")
        await pool.pass_s(2.0)
        assert (pool.width, pool.slots) == (2, 4)
        sent = [pool.enter(name).decision for name in ("1", "2", "3")]
        assert {each.engine for each in sent if isinstance(each, Admit)} == {"10.0.0.1:8000", "10.0.0.2:8000"}
        names.answers["vllm.ns.svc"] = ("10.0.0.2", "10.0.0.3")
        await pool.pass_s(7.0)
        later = [pool.enter(name).decision for name in ("4", "5")]
        assert {each.engine for each in later if isinstance(each, Admit)} == {"10.0.0.3:8000"}
        assert pool.controller.snapshot(pool.clock.now_s()).in_flight == 6


async def test_another_policy_keeps_the_engines_that_were_found() -> None:
    """Other limits over the same name: the books stay, and so does what runs in them."""
    names = Names(**{"vllm.ns.svc": ("10.0.0.1", "10.0.0.2")})
    name = "dns:vllm.ns.svc:8000"
    async with watched(policy_of(name, tidegate_steer="on", tidegate_slots_max="2"), names) as pool:
        assert isinstance(pool.enter("1").decision, Admit)
        books = list(pool.controller._fleet.books)
        pool.follow(policy_of(name, tidegate_steer="on", tidegate_slots_max="5"))
        assert pool.controller._fleet.books == books
        assert (pool.width, pool.slots) == (2, 10)
        pool.follow(policy_of(name, tidegate_slots_max="5"))
        assert (pool.width, pool.slots) == (2, 10)
        assert [book.name for book in pool.controller._fleet.books] == [""]
        assert pool.controller.snapshot(pool.clock.now_s()).in_flight == 1


async def test_another_policy_while_there_is_no_engine() -> None:
    """None is still none, steered or not, and those that come are found under the new limits."""
    names = Names(**{"vllm.ns.svc": ("10.0.0.1",)})
    name = "dns:vllm.ns.svc:8000"
    for steer in ("on", "off"):
        names.answers["vllm.ns.svc"] = ("10.0.0.1",)
        async with watched(policy_of(name, tidegate_steer=steer, tidegate_slots_max="2"), names) as pool:
            names.answers["vllm.ns.svc"] = ()
            await pool.pass_s(7.0)
            assert pool.width == 0
            pool.follow(policy_of(name, tidegate_steer=steer, tidegate_slots_max="5"))
            assert pool.width == 0
            assert getattr(pool.enter("1", 0.0).decision, "status", None) == 503
            names.answers["vllm.ns.svc"] = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
            await pool.pass_s(2.0)
            assert (pool.width, pool.slots) == (3, 15)


async def test_another_policy_while_there_is_no_engine_keeps_the_books() -> None:
    """Those that are back have what ran in them, whatever the limits are by then."""
    names = Names(**{"vllm.ns.svc": ("10.0.0.1", "10.0.0.2")})
    name = "dns:vllm.ns.svc:8000"
    async with watched(policy_of(name, tidegate_steer="on"), names) as pool:
        books = list(pool.controller._fleet.books)
        assert len(books) == 2
        names.answers["vllm.ns.svc"] = ()
        await pool.pass_s(7.0)
        pool.follow(policy_of(name, tidegate_steer="on", tidegate_slots_max="5"))
        assert pool.width == 0
        assert pool.controller._fleet.books == books
        names.answers["vllm.ns.svc"] = ("10.0.0.1", "10.0.0.2")
        await pool.pass_s(2.0)
        assert pool.controller._fleet.books == books


async def test_engines_found_by_dns_that_are_asked_from_now_on() -> None:
    """Those found before the kind was stated are expected to answer, too."""
    names = Names(**{"vllm.ns.svc": ("10.0.0.1",)})
    async with watched(policy_of("dns:vllm.ns.svc:8000"), names) as pool:
        assert (pool.engines, pool.width) == ([], 1)
        pool.follow(policy_of("dns:vllm.ns.svc:8000", tidegate_engine="vllm"))
        assert pool.engines == ["10.0.0.1:8000"]


async def test_a_policy_that_names_other_engines_or_none() -> None:
    """The policy's word counts at once, and what is no longer asked is not stale."""
    async with watched(policy_of("10.0.0.1:8000", tidegate_engine="vllm", tidegate_slots_max="2")) as pool:
        pool.follow(policy_of("10.0.0.2:8000,10.0.0.3:8000", tidegate_engine="vllm", tidegate_slots_max="2"))
        assert (pool.engines, pool.slots) == (["10.0.0.2:8000", "10.0.0.3:8000"], 4)
        pool.follow(policy_of("10.0.0.2:8000", tidegate_slots_max="2"))
        assert (pool.engines, pool.slots) == ([], 2)
        pool.follow(policy_of(None, tidegate_slots_max="2"))
        assert (pool.engines, pool.slots) == ([], 2)
        await pool.pass_s(10.0)
        assert pool.controller.snapshot(pool.clock.now_s()).engines_stale == 0


async def test_engines_that_are_asked_from_now_on() -> None:
    """The same addresses, and a kind that was not there before: readings are expected of them."""
    async with watched(policy_of("10.0.0.1:8000")) as pool:
        pool.follow(policy_of("10.0.0.1:8000", tidegate_engine="vllm"))
        assert pool.engines == ["10.0.0.1:8000"]


async def test_a_request_that_waits_is_told_of_a_reading() -> None:
    """What a reading lets in gets its verdict in the same moment."""
    address = "10.0.0.1:8000"
    async with watched(policy_of(address, tidegate_engine="vllm", tidegate_mode="backpressure-first")) as pool:
        pool.watch.on_reading(address, EngineReading(ready=False), pool.clock.now_s())
        waiting = pool.enter("1")
        assert verdict(waiting) is None
        pool.watch.on_reading(address, EngineReading(), pool.clock.now_s())
        assert isinstance(verdict(waiting), Admit)


async def test_half_a_page_where_nothing_listened_is_a_new_engine() -> None:
    """It is on trial under `closed`; half a page of an engine that was there all along is not."""
    address = "10.0.0.1:8000"
    policy = policy_of(address, tidegate_engine="tgi", tidegate_stale="closed")
    for causes, open_again in (
        ((Cause.REFUSED, Cause.HALF_PAGE), True),
        ((Cause.HALF_PAGE, Cause.HALF_PAGE), False),
        ((Cause.REFUSED, Cause.TIMEOUT, Cause.HALF_PAGE), False),
    ):
        async with watched(policy) as pool:
            pool.watch.on_reading(address, EngineReading(), pool.clock.now_s())
            pool.clock.advance(60.0)
            assert getattr(pool.enter("1", 0.0).decision, "status", None) == 503
            for cause in causes:
                pool.watch.on_failure(address, cause, pool.clock.now_s())
            assert isinstance(pool.enter("2", 0.0).decision, Admit) is open_again
