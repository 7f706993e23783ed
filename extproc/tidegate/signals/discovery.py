"""Which engines a pool has now: those its policy names, and those its DNS names resolve to.

A name is looked up about every 5 s, and every second while it has no address, so that an engine that appears is found
while callers still wait for it. What counts is the last answer:

    an address is not in it any more   its engine is gone at once
    no such name, or no address        no engine at all
    no answer                          nothing is known, so the last answer stays, for as long as it takes

A name that has never been answered is unknown, not empty: while that leaves no engine at all, nothing is said. DNS
must name all engines in each answer; one that rotates through them makes them come and go. More than 256 addresses are
cut off, in the order of their numbers, so that the same ones stay.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from random import Random

from tidegate.clock import Clock
from tidegate.policy import EngineAddress
from tidegate.policy.engines import ENGINES_MAX
from tidegate.signals.allow import IPAddress
from tidegate.signals.poll_tally import LookupEnd, PollTally
from tidegate.signals.resolve import LookupFailed, Resolve
from tidegate.signals.targets import Target, dns_targets, static_target
from tidegate.signals.timing import deadline, sleep_until

log = logging.getLogger(__name__)

LOOKUP_EVERY_S = 5.0
LOOKUP_EMPTY_EVERY_S = 1.0
LOOKUP_JITTER = 0.2
LOOKUP_DEADLINE_S = 3.0


class Discovery:
    """The engines of one pool.

    Args:
        pool: its name, for the log.
        resolve: DNS.
        clock: lookups and their deadlines are timed by it.
        rng: for the jitter.
        tally: takes the ends of lookups.
        on_change: told of the whole set, each time it is another than before, the first time included.
    """

    def __init__(
        self,
        pool: str,
        *,
        resolve: Resolve,
        clock: Clock,
        rng: Random,
        tally: PollTally,
        on_change: Callable[[tuple[Target, ...]], None],
    ) -> None:
        self._pool = pool
        self._resolve = resolve
        self._clock = clock
        self._rng = rng
        self._tally = tally
        self._on_change = on_change
        self._engines: tuple[EngineAddress, ...] = ()
        self._page_path = "/"
        self._answers: dict[str, tuple[IPAddress, ...]] = {}
        self._lookups: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._failing: set[str] = set()
        self._told: tuple[Target, ...] | None = None
        self._cut_told = False

    def reconfigure(self, engines: tuple[EngineAddress, ...], page_path: str) -> None:
        """Look for these from now on; what is known of names that stay is kept.

        Args:
            engines: as the policy names them.
            page_path: of the metrics page, where the policy names none.
        """
        self._engines, self._page_path = engines, page_path
        names = {engine.address: engine for engine in engines if engine.dns}
        for gone in self._lookups.keys() - names.keys():
            self._forget(gone)
        for address in names.keys() - self._lookups.keys():
            task = asyncio.create_task(self._keep_looking(address), name=f"lookup {address}")
            self._lookups[address] = task
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._publish()

    def stop(self) -> None:
        """Look no more; nothing is told from here on."""
        self._engines, self._told = (), None
        for name in list(self._lookups):
            self._forget(name)

    async def wait_closed(self) -> None:
        """Wait until all lookups have ended, after `stop`."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def failing(self) -> list[str]:
        """`NAME:PORT` of the names whose last lookup had no answer."""
        return sorted(self._failing)

    def _forget(self, name: str) -> None:
        self._lookups.pop(name).cancel()
        self._answers.pop(name, None)
        self._failing.discard(name)

    async def _keep_looking(self, address: str) -> None:
        while True:
            try:
                await self._look(address)
            except Exception:
                self._tally.lookups[LookupEnd.FAULT] += 1
                if self._tally.lookups[LookupEnd.FAULT] == 1:
                    log.exception("pool %s: a lookup of %s failed by a fault of ours; it goes on", self._pool, address)
            every_s = LOOKUP_EVERY_S if self._answers.get(address) else LOOKUP_EMPTY_EVERY_S
            wait_s = every_s * self._rng.uniform(1.0 - LOOKUP_JITTER, 1.0 + LOOKUP_JITTER)
            await sleep_until(self._clock, self._clock.now_s() + wait_s)

    async def _look(self, address: str) -> None:
        try:
            async with deadline(self._clock, LOOKUP_DEADLINE_S):
                found = await self._resolve(address.rpartition(":")[0])
        except (LookupFailed, TimeoutError) as error:
            self._fail(address, str(error) or f"no answer within {LOOKUP_DEADLINE_S:g} s")
            return
        self._tally.lookups[LookupEnd.ANSWERED if found else LookupEnd.EMPTY] += 1
        self._failing.discard(address)
        self._answers[address] = found
        self._publish()

    def _fail(self, address: str, why: str) -> None:
        self._tally.lookups[LookupEnd.FAILED] += 1
        if address in self._failing:
            return
        self._failing.add(address)
        kept = len(self._answers.get(address, ()))
        log.warning("pool %s: %s cannot be looked up (%s); addresses that stay: %d", self._pool, address, why, kept)

    def _publish(self) -> None:
        targets: dict[str, Target] = {}
        for target in self._found():
            if len(targets) >= ENGINES_MAX:
                self._tell_cut()
                break
            targets.setdefault(target.address, target)
        unknown = any(name not in self._answers for name in self._lookups)
        found = tuple(targets.values())
        if found == self._told or (unknown and not found):
            return
        self._told = found
        self._on_change(found)

    def _found(self) -> Iterator[Target]:
        for engine in self._engines:
            if engine.dns:
                yield from dns_targets(engine, self._answers.get(engine.address, ()), self._page_path)
            else:
                yield static_target(engine, self._page_path)

    def _tell_cut(self) -> None:
        if not self._cut_told:
            self._cut_told = True
            log.warning("pool %s: more than %d addresses; the rest is left out", self._pool, ENGINES_MAX)
