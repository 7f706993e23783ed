"""Which engines a pool has: named ones, and what DNS says of names."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from random import Random

import pytest

from tests.unit.signals_polling.harness import Names, let_run, soon
from tidegate.clock import ManualClock
from tidegate.policy import EngineAddress
from tidegate.policy.engines import ENGINES_MAX, engines
from tidegate.signals.allow import IPAddress
from tidegate.signals.discovery import LOOKUP_DEADLINE_S, Discovery
from tidegate.signals.poll_tally import LookupEnd, PollTally
from tidegate.signals.resolve import Resolve
from tidegate.signals.targets import Target

VLLM = engines("dns:vllm.test:8000")
ONCE_MORE_S = 6.0
"""Longer than the longest pause between two lookups of a name that has addresses."""


class Search:
    """A discovery and what it told."""

    def __init__(self, resolve: Resolve) -> None:
        self.clock = ManualClock()
        self.tally = PollTally()
        self.told: list[list[str]] = []
        self.targets: tuple[Target, ...] = ()
        self.discovery = Discovery(
            "vllm", resolve=resolve, clock=self.clock, rng=Random(3), tally=self.tally, on_change=self._take
        )

    async def pass_s(self, seconds: float) -> None:
        await let_run()
        self.clock.advance(seconds)
        await let_run()

    async def look(self, named: tuple[EngineAddress, ...], path: str = "/metrics") -> None:
        self.discovery.reconfigure(named, path)
        await let_run()

    def _take(self, targets: tuple[Target, ...]) -> None:
        self.targets = targets
        self.told.append([target.address for target in targets])


@asynccontextmanager
async def searching(resolve: Resolve) -> AsyncIterator[Search]:
    """A discovery that is stopped at the end."""
    search = Search(resolve)
    try:
        yield search
    finally:
        search.discovery.stop()
        await soon(search.discovery.wait_closed())


async def test_named_engines_are_there_at_once() -> None:
    """Engines that are named with their address need no DNS; their pages are where the policy says."""
    async with searching(Names()) as search:
        search.discovery.reconfigure(engines("10.0.0.1:8000,[::1]:8000;metrics=http://h:9/m,vllm-0:8000"), "/metrics")
        assert search.targets == (
            Target(address="10.0.0.1:8000", url="http://10.0.0.1:8000/metrics"),
            Target(address="[::1]:8000", url="http://h:9/m"),
            Target(address="vllm-0:8000", url="http://vllm-0:8000/metrics"),
        )


async def test_a_name_stands_for_all_its_addresses() -> None:
    """Each address of a name is an engine, with the path that the policy names for all, and its name is kept."""
    names = Names(**{"vllm.test": ("10.0.0.1", "10.0.0.2"), "six.test": ("fd00::1",)})
    async with searching(names) as search:
        await search.look(engines("dns:vllm.test:8000;metrics=/m,dns:six.test:9"))
        assert set(search.targets) == {
            Target(address="10.0.0.1:8000", url="http://10.0.0.1:8000/m", name="vllm.test"),
            Target(address="10.0.0.2:8000", url="http://10.0.0.2:8000/m", name="vllm.test"),
            Target(address="[fd00::1]:9", url="http://[fd00::1]:9/metrics", name="six.test"),
        }


async def test_a_name_that_changes_changes_the_set() -> None:
    """What the next answer lacks is gone, what it has is new; the same answer tells nothing."""
    names = Names(**{"vllm.test": ("10.0.0.1", "10.0.0.2")})
    async with searching(names) as search:
        await search.look(VLLM)
        await search.pass_s(ONCE_MORE_S)
        names.answers["vllm.test"] = ("10.0.0.2", "10.0.0.3")
        await search.pass_s(ONCE_MORE_S)
        assert search.told == [["10.0.0.1:8000", "10.0.0.2:8000"], ["10.0.0.2:8000", "10.0.0.3:8000"]]
        assert search.tally.lookups[LookupEnd.ANSWERED] == names.asked.qsize() == 3


async def test_no_such_name_is_no_engine() -> None:
    """A name without addresses is known to stand for no engine, whether it had some before or not."""
    names = Names(**{"vllm.test": ("10.0.0.1",)})
    async with searching(names) as search:
        await search.look(VLLM)
        names.answers["vllm.test"] = ()
        await search.pass_s(ONCE_MORE_S)
        assert search.told == [["10.0.0.1:8000"], []]
    async with searching(Names()) as search:
        await search.look(VLLM)
        assert search.told == [[]]
        assert search.tally.lookups[LookupEnd.EMPTY] == 1


async def test_an_engine_that_appears_is_found_within_a_second_and_a_bit() -> None:
    """While a name has no address it is looked up every second, for somebody may be waiting."""
    names = Names()
    async with searching(names) as search:
        await search.look(VLLM)
        await search.pass_s(1.2)
        await search.pass_s(1.2)
        names.answers["vllm.test"] = ("10.0.0.1",)
        await search.pass_s(1.2)
        assert search.told == [[], ["10.0.0.1:8000"]]


async def test_without_an_answer_the_last_one_stays(caplog: pytest.LogCaptureFixture) -> None:
    """While name servers are gone the engines stay, for an hour too; it is logged once, and an answer counts again."""
    names = Names(**{"vllm.test": ("10.0.0.1",)})
    async with searching(names) as search:
        await search.look(VLLM)
        names.answers["vllm.test"] = None
        for _ in range(600):
            await search.pass_s(ONCE_MORE_S)
        assert search.told == [["10.0.0.1:8000"]]
        assert search.discovery.failing == ["vllm.test:8000"]
        assert search.tally.lookups[LookupEnd.FAILED] == 600
        assert [record.getMessage() for record in caplog.records] == [
            "pool vllm: vllm.test:8000 cannot be looked up (no name server answers); addresses that stay: 1"
        ]
        names.answers["vllm.test"] = ("10.0.0.2",)
        await search.pass_s(ONCE_MORE_S)
        assert search.told[1:] == [["10.0.0.2:8000"]]
        assert search.discovery.failing == []


async def test_a_name_that_was_never_answered_is_unknown() -> None:
    """Before the first answer nothing is said: no engine would be a reason to refuse everybody."""
    names = Names(**{"vllm.test": None})
    async with searching(names) as search:
        await search.look(VLLM)
        await search.pass_s(ONCE_MORE_S)
        assert search.told == []
        names.answers["vllm.test"] = ()
        await search.pass_s(ONCE_MORE_S)
        assert search.told == [[]]


async def test_a_lookup_that_hangs_is_given_up() -> None:
    """A resolver that does not come back counts as no answer after three seconds, and is asked again."""
    asked: asyncio.Queue[str] = asyncio.Queue()

    async def hang(name: str) -> tuple[IPAddress, ...]:
        asked.put_nowait(name)
        await asyncio.Event().wait()
        raise AssertionError

    async with searching(hang) as search:
        await search.look(VLLM)
        await search.pass_s(LOOKUP_DEADLINE_S)
        assert search.tally.lookups[LookupEnd.FAILED] == 1
        assert search.discovery.failing == ["vllm.test:8000"]
        await search.pass_s(ONCE_MORE_S)
        assert asked.qsize() == 2


async def test_a_fault_of_ours_does_not_end_the_lookups(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever a resolver raises is counted and logged once, and the name is looked up again."""

    async def broken(_name: str) -> tuple[IPAddress, ...]:
        raise RuntimeError("broken")

    async with searching(broken) as search:
        await search.look(VLLM)
        await search.pass_s(ONCE_MORE_S)
        await search.pass_s(ONCE_MORE_S)
        assert search.tally.lookups[LookupEnd.FAULT] == 3
        assert len(caplog.records) == 1


async def test_more_addresses_than_a_pool_may_have_are_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    """Of too many addresses the same 256 stay, in whatever order they come; it is logged once."""
    every = tuple(str(ip_address("10.0.0.0") + i) for i in range(300))
    names = Names(**{"vllm.test": every})
    async with searching(names) as search:
        await search.look(VLLM)
        await search.pass_s(ONCE_MORE_S)
        assert search.told == [[f"{address}:8000" for address in every[:ENGINES_MAX]]]
        assert len(caplog.records) == 1


async def test_an_address_counts_once() -> None:
    """An engine that is named and that two names resolve to is one engine; the first entry says where its page is."""
    names = Names(**{"a.test": ("10.0.0.1",), "b.test": ("10.0.0.1", "10.0.0.2")})
    async with searching(names) as search:
        await search.look(engines("10.0.0.1:8000;metrics=http://10.0.0.1:9/,dns:a.test:8000,dns:b.test:8000"))
        assert search.told[-1] == ["10.0.0.1:8000", "10.0.0.2:8000"]
        assert search.targets[0].url == "http://10.0.0.1:9/"


async def test_reconfigured_names() -> None:
    """A name that stays keeps its last answer without another lookup, one that goes is forgotten, a new one asked."""
    names = Names(**{"a.test": ("10.0.0.1",), "b.test": ("10.0.0.2",), "c.test": ("10.0.0.3",)})
    async with searching(names) as search:
        await search.look(engines("dns:a.test:1,dns:b.test:1"))
        await search.look(engines("dns:a.test:1,dns:c.test:1"))
        assert search.told[-1] == ["10.0.0.1:1", "10.0.0.3:1"]
        assert [names.asked.get_nowait() for _ in range(names.asked.qsize())].count("a.test") == 1
        await search.look(engines("dns:a.test:1"), path="/elsewhere")
        assert [target.url for target in search.targets] == ["http://10.0.0.1:1/elsewhere"]
        await search.look(())
        assert search.told[-1] == []
        names.answers["a.test"] = None
        await search.look(engines("dns:a.test:1"))
        assert search.told[-1] == []


async def test_a_lookup_under_way_tells_nothing_after_the_end() -> None:
    """An answer that comes after its name was dropped, or after the stop, changes nothing."""
    asked, answer = asyncio.Event(), asyncio.Event()

    async def late(_name: str) -> tuple[IPAddress, ...]:
        asked.set()
        await answer.wait()
        return (ip_address("10.0.0.1"),)

    async with searching(late) as search:
        await search.look(VLLM)
        await soon(asked.wait())
        answer.set()
        search.discovery.stop()
        await let_run()
        assert search.told == []
