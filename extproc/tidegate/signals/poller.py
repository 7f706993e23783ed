"""The engines of one pool, found and polled for as long as the pool lives.

Each engine has a task: it waits, takes its turn, polls, tells, and never has more than one poll under way. Whatever
goes wrong in a poll is a failure of that poll, faults of this program included.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from tidegate.admission.reading import EngineReading
from tidegate.policy import EngineAddress
from tidegate.signals import pace
from tidegate.signals.base import PageReader
from tidegate.signals.causes import Cause, PollFailed
from tidegate.signals.discovery import Discovery
from tidegate.signals.engine_poll import EnginePoll
from tidegate.signals.poll_tally import READ, PollTally
from tidegate.signals.polling import EngineListener, Polling
from tidegate.signals.targets import Target
from tidegate.signals.timing import sleep_until

log = logging.getLogger(__name__)

STALE_AFTER_S = 5.0
"""A healthy engine is read every second; one late page and the next good one are 3.2 s apart."""
COMPLAIN_EVERY_S = 60.0


@dataclass(slots=True, kw_only=True, eq=False)
class _Engine:
    """One engine that is polled."""

    target: Target
    poll: EnginePoll
    since_s: float
    polls: int = 0
    failures: int = 0  # in a row
    reading: EngineReading | None = None
    read_s: float | None = None
    task: asyncio.Task[None] | None = field(default=None, repr=False)


class Poller:
    """Finds and polls the engines of one pool; idle until `reconfigure` names some.

    Args:
        pool: its name, for the log.
        listener: told what is found and read; its own errors are caught, counted and logged once.
        shared: with the pollers of other pools.

    Attributes:
        tally: counts of polls and lookups.
    """

    def __init__(self, pool: str, listener: EngineListener, shared: Polling) -> None:
        self._pool = pool
        self._listener = listener
        self._shared = shared
        self._clock = shared.clock
        self._reader: PageReader | None = None
        self._named = False
        self._targets: dict[str, Target] = {}
        self._told: tuple[str, ...] | None = None
        self._engines: dict[str, _Engine] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._complained_s = -inf
        self._fault_told = False
        self.tally = PollTally()
        self._discovery = Discovery(
            pool,
            resolve=shared.resolve,
            clock=shared.clock,
            rng=shared.rng,
            tally=self.tally,
            on_change=self._on_targets,
        )

    def reconfigure(self, engines: tuple[EngineAddress, ...], reader: PageReader | None) -> None:
        """Find and poll these from now on; the first call starts it, engines that stay keep their readings.

        Args:
            engines: as the policy names them; none: nothing is polled, and no set is told.
            reader: of their pages; None: they are found, and not polled.
        """
        self._reader = reader
        self._named = bool(engines)
        self._told = self._told if engines else None
        self._discovery.reconfigure(engines, reader.path if reader is not None else "/")
        self._sync()

    def stop(self) -> None:
        """Poll no more: nothing is told from here on. Safe to repeat."""
        self._discovery.stop()
        self._targets, self._told = {}, None
        self._sync()

    async def wait_closed(self) -> None:
        """Wait until everything that was under way has ended, after `stop`."""
        await self._discovery.wait_closed()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def reading(self, address: str) -> EngineReading | None:
        """The last reading of an engine, None where there is none."""
        engine = self._engines.get(address)
        return None if engine is None else engine.reading

    def age_s(self, address: str, now_s: float) -> float | None:
        """Seconds since that reading, None where there is none."""
        engine = self._engines.get(address)
        return None if engine is None or engine.read_s is None else now_s - engine.read_s

    def stale(self, now_s: float, *, after_s: float = STALE_AFTER_S) -> list[str]:
        """Engines that are polled and have given no reading for `after_s` seconds."""
        return [
            address
            for address, engine in self._engines.items()
            if now_s - (engine.since_s if engine.read_s is None else engine.read_s) >= after_s
        ]

    @property
    def failing_names(self) -> list[str]:
        """`NAME:PORT` of the DNS names whose last lookup had no answer; their last addresses stay."""
        return self._discovery.failing

    def _on_targets(self, targets: tuple[Target, ...]) -> None:
        self._targets = {target.address: target for target in targets}
        self._sync()  # new engines are polled from the next turn of the event loop on: after they were told
        addresses = tuple(self._targets)
        if self._named and addresses != self._told:
            self._told = addresses
            self._guarded(lambda: self._listener.on_engines(addresses, self._clock.now_s()))

    def _sync(self) -> None:
        """A task for each target, and for nothing else."""
        self._end_others()
        if self._reader is None:
            return
        for address, target in self._targets.items():
            if address not in self._engines:
                self._begin(target)

    def _end_others(self) -> None:
        for address, engine in list(self._engines.items()):
            if self._reader is None or self._targets.get(address) != engine.target:
                del self._engines[address]
                if engine.task is not None:
                    engine.task.cancel()

    def _begin(self, target: Target) -> None:
        poll = EnginePoll(target, self._shared.fetcher, self._shared.budget, self._clock)
        engine = _Engine(target=target, poll=poll, since_s=self._clock.now_s())
        self._engines[target.address] = engine
        engine.task = asyncio.create_task(self._keep_polling(engine), name=f"poll {target.address}")
        self._tasks.add(engine.task)
        engine.task.add_done_callback(self._tasks.discard)

    async def _keep_polling(self, engine: _Engine) -> None:
        next_s = self._clock.now_s() + pace.first_wait_s(self._shared.rng)
        while self._engines.get(engine.target.address) is engine:
            await sleep_until(self._clock, next_s)
            async with self._shared.budget.turn(failing=engine.failures > 0):
                started_s = self._clock.now_s()
                await self._poll(engine)
            engine.polls += 1
            next_s = started_s + pace.period_s(failures=engine.failures, polls=engine.polls, rng=self._shared.rng)

    async def _poll(self, engine: _Engine) -> None:
        reader = self._reader
        assert reader is not None, "engines are polled only where there is a reader"
        try:
            reading = await engine.poll.look(reader)
        except PollFailed as failed:
            self._fail(engine, failed)
        except Exception as error:
            self._log_fault(error)
            self._fail(engine, PollFailed(Cause.FAULT, type(error).__name__))
        else:
            self._take(engine, reading)

    def _take(self, engine: _Engine, reading: EngineReading) -> None:
        address, now_s = engine.target.address, self._clock.now_s()
        if self._engines.get(address) is not engine:
            return  # the pool has let go of it, and something on the way took no notice of the cancellation
        self.tally.polls[READ] += 1
        engine.failures, engine.reading, engine.read_s = 0, reading, now_s
        self._guarded(lambda: self._listener.on_reading(address, reading, now_s))

    def _fail(self, engine: _Engine, failed: PollFailed) -> None:
        address, now_s = engine.target.address, self._clock.now_s()
        if self._engines.get(address) is not engine:
            return
        self.tally.polls[failed.cause] += 1
        engine.failures += 1
        if now_s - self._complained_s >= COMPLAIN_EVERY_S:
            self._complained_s = now_s
            failing = sum(1 for other in self._engines.values() if other.failures)
            log.warning(
                "pool %s: %d of %d engines cannot be read, last %s (%s)",
                self._pool,
                failing,
                len(self._engines),
                address,
                failed,
            )
        self._guarded(lambda: self._listener.on_failure(address, failed.cause, now_s))

    def _guarded(self, tell: Callable[[], None]) -> None:
        try:
            tell()
        except Exception as error:
            self.tally.polls[Cause.FAULT] += 1
            self._log_fault(error)

    def _log_fault(self, error: Exception) -> None:
        if not self._fault_told:
            self._fault_told = True
            log.error("pool %s: a fault of ours while polling; it goes on", self._pool, exc_info=error)
