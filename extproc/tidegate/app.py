"""The one place that builds objects with collaborators, starts them, and stops them in order."""

import asyncio
import gc
import logging
import secrets
import signal
from dataclasses import dataclass
from pathlib import Path
from random import Random

import uvloop

from tidegate import __version__
from tidegate.admission.controller import Controller
from tidegate.clock import Clock, SystemClock
from tidegate.errors import PolicyError
from tidegate.estimators import Estimators
from tidegate.intake import Intake
from tidegate.keeper import Keeper
from tidegate.page_server import host_port
from tidegate.policy import PoolPolicy
from tidegate.pools import Change, Pool, PoolEvent, Pools
from tidegate.receipt import ReceiptField
from tidegate.seal import new_seal
from tidegate.settlement import Settlement
from tidegate.signals.allow import ENGINE_ALLOW, engine_allow
from tidegate.signals.engine_watch import EngineWatch
from tidegate.signals.polling import Polling
from tidegate.tally import Count, Tally
from tidegate.telemetry import gauges, logs
from tidegate.telemetry.engine_figures import EngineCollector, EngineFigures, PoolSignals
from tidegate.telemetry.metrics import ServiceCollector, registry_of
from tidegate.telemetry.ops_server import OpsServer
from tidegate.turnstile import Turnstile
from tidegate.wire.access_log import AccessLogService
from tidegate.wire.answers import Answers
from tidegate.wire.ext_proc import ExtProcService
from tidegate.wire.server import Address, GrpcServer

log = logging.getLogger(__name__)

HOUSEKEEPING_S = 1.0
SAVE_POOLS_ROUNDS = 10
SAVE_MODELS_ROUNDS = 60
FULL_COLLECTION_ROUNDS = 60
LAST_ENTRIES_S = 0.25
"""After the last stream its access-log entry is still on the way: Envoy sends batches every 50 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The process's flags."""

    listen: str = "127.0.0.1:9002"
    ops_listen: str = "127.0.0.1:9003"
    state_dir: Path | None = None
    key_file: Path | None = None
    engine_allow: str = ENGINE_ALLOW
    grace_s: float = 25.0
    body_bytes_max: int = 32 * 1024 * 1024
    log_level: str = "info"
    request_log: bool = True


class App:
    """The service, wired up. `run` serves until it is told to stop."""

    def __init__(self, settings: Settings, *, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = SystemClock() if clock is None else clock
        self._stop = asyncio.Event()
        self.replica = secrets.token_hex(4)
        self.tally = Tally()
        self._lines = logs.LineWriter(lambda: self.tally.add(Count.LOG_LINES_DROPPED))
        logs.configure(self._lines, settings.log_level)
        self._polling = Polling.of(engine_allow(settings.engine_allow), self._clock, rng=Random())  # noqa: S311  jitter
        self._watches: dict[str, EngineWatch] = {}
        self.estimators = Estimators(settings.state_dir)
        self.pools = Pools(
            self._build_pool,
            estimator_of=self.estimators.of,
            clock=self._clock,
            on_policy_error=self._on_policy_error,
            on_event=self._on_pool_event,
        )
        self._keeper = Keeper(settings.state_dir, self.pools, self.estimators)
        intake = Intake(self.pools, self.tally, replica=self.replica)
        seal = new_seal(settings.key_file)
        write_receipt = self._write_receipt if settings.request_log else None
        settlement = Settlement(self.pools, intake, self.tally, seal, self._clock, write_receipt)
        answers = Answers(self.replica, Random(), seal)  # noqa: S311  it spreads retries, it keeps no secret
        self.ext_proc = ExtProcService(intake, answers, self.tally, self._clock)
        if not settings.listen.startswith("unix:"):
            # gRPC itself takes a port that is too large for another one
            host_port("--listen", settings.listen, such_as="127.0.0.1:9002")
        self.grpc = GrpcServer(
            self.ext_proc,
            AccessLogService(settlement.take, self.tally),
            Address(listen=settings.listen, message_bytes_max=settings.body_bytes_max),
        )
        collector = ServiceCollector(self.tally, self._pool_gauges, self._process_figures)
        address = host_port("--ops-listen", settings.ops_listen, such_as="127.0.0.1:9003")
        registry = registry_of(collector, EngineCollector(self._pool_signals))
        self.ops = OpsServer(registry, lambda: not self.ext_proc.draining, address)

    def stop(self) -> None:
        """Ask `run` to drain and return."""
        self._stop.set()

    async def run(self) -> None:
        """Start, serve, and on `stop` drain within the grace; FlagError where an address cannot be bound."""
        self._keeper.restore(self._clock.now_s())
        await self.grpc.start()
        await self.ops.start()
        self._log_start()
        chores = asyncio.create_task(self._chores())
        try:
            await self._stop.wait()
            await self._drain()
        finally:
            chores.cancel()
            await self._stop_watching()
            await self.ops.stop()
            await self.grpc.stop(0.0)
            log.info("stopped")
            self._lines.close()

    async def _drain(self) -> None:
        log.info("draining: %d exchanges are open", self.ext_proc.streams)
        self.ext_proc.draining = True
        await self.grpc.stop_accepting()
        for pool in self.pools:
            pool.turnstile.drain()
        # New streams go elsewhere from here on; those that are open run on.
        closing = asyncio.create_task(self.grpc.stop(self._settings.grace_s + 5.0))
        if await self.ext_proc.streams_ended(self._settings.grace_s):
            await asyncio.sleep(LAST_ENTRIES_S)
            self._keeper.save(self._clock.now_s())
        else:
            log.warning("the grace is over: %d exchanges run on without us", self.ext_proc.streams)
            # while their bookings are there: the next process keeps them until the log tells their end
            self._keeper.save(self._clock.now_s())
            self.ext_proc.let_go()
            await self.ext_proc.streams_ended(1.0)
        await self.grpc.stop(0.0)
        await closing

    async def _chores(self) -> None:
        rounds = 0
        while True:
            await asyncio.sleep(HOUSEKEEPING_S)
            now_s = self._clock.now_s()
            try:
                for pool in self.pools:
                    pool.turnstile.tick()
                self.pools.housekeep(now_s)
                rounds += 1
                gc.collect(2 if rounds % FULL_COLLECTION_ROUNDS == 0 else 1)
                if rounds % SAVE_POOLS_ROUNDS == 0:
                    await self._keeper.save_pools_aside(now_s)
                if rounds % SAVE_MODELS_ROUNDS == 0:
                    await self._keeper.save_models_aside()
            except Exception:
                self.tally.add(Count.INTERNAL_ERRORS, "chores")
                log.exception("a chore failed; the next round goes on")

    async def _stop_watching(self) -> None:
        for watch in self._watches.values():
            watch.stop()
        for watch in self._watches.values():
            await watch.wait_closed()
        await self._polling.close()

    def _build_pool(self, policy: PoolPolicy, now_s: float) -> Pool:
        controller = Controller(policy.limits, engines=policy.engine_count, names=policy.steered, now_s=now_s)
        turnstile = Turnstile(controller, self._clock)
        watch = self._watches[policy.name] = EngineWatch(policy, turnstile, self._polling)
        return Pool(
            name=policy.name,
            policy=policy,
            controller=controller,
            turnstile=turnstile,
            watch=watch,
            estimator=self.estimators.of(policy.estimator),
            started_s=now_s,
            last_seen_s=now_s,
        )

    def _write_receipt(self, fields: dict[str, ReceiptField]) -> None:
        self._lines.write(fields, wall_s=self._clock.wall_s())

    def _on_policy_error(self, error: PolicyError, pool: str) -> None:
        self.tally.add(Count.POLICY_ERRORS)
        log.error("pool %s runs under its last good policy, because a key is wrong: %s", pool, error)

    def _on_pool_event(self, event: PoolEvent) -> None:
        if event.change is Change.DROPPED:
            self.tally.forget_pool(event.pool)
            del self._watches[event.pool]
        level = logging.WARNING if event.change in _WORRYING else logging.INFO
        log.log(level, "pool %s: %s %s", event.pool, event.change, " ".join(event.details.split("\n")))

    def _pool_gauges(self) -> tuple[gauges.PoolGauges, gauges.PoolGauges]:
        now_s = self._clock.now_s()
        conflicts = set(self.pools.conflicts(now_s))
        snapshots = {pool.name: pool.controller.snapshot(now_s) for pool in self.pools}
        shown = {name: gauges.of_snapshot(each, conflict=name in conflicts) for name, each in snapshots.items()}
        return shown, {name: gauges.counts_of(each) for name, each in snapshots.items()}

    def _pool_signals(self) -> dict[str, PoolSignals]:
        now_s = self._clock.now_s()
        return {
            pool.name: _signals_of(pool, self._watches[pool.name], now_s)
            for pool in self.pools
            if pool.policy.seeks_engines
        }

    def _process_figures(self) -> gauges.ProcessFigures:
        return gauges.of_process(
            streams=self.ext_proc.streams,
            pools=len(self.pools),
            draining=self.ext_proc.draining,
            overflowed_total=self.pools.overflowed_total,
            conflicts_total=self.pools.conflicts_total,
            bad_policy_total=self.pools.reader.errors_total,
        )

    def _log_start(self) -> None:
        self._lines.write(
            {
                "event": "listening",
                "version": __version__,
                "replica": self.replica,
                "grpc": self._settings.listen,
                "grpc_port": self.grpc.port,
                "ops_port": self.ops.port,
            },
            wall_s=self._clock.wall_s(),
        )


def _signals_of(pool: Pool, watch: EngineWatch, now_s: float) -> PoolSignals:
    tally = watch.poller.tally
    return PoolSignals(
        engines=[
            EngineFigures(address=address, reading=reading, age_s=age_s)
            for address, reading, age_s in pool.controller.readings(now_s)
        ],
        polls=tally.polls,
        lookups={str(end): count for end, count in tally.lookups.items()},
        names_failing=len(watch.poller.failing_names),
    )


_WORRYING = frozenset({Change.CONFLICT, Change.OVERFLOWED, Change.NOT_RESTORED})


def serve(settings: Settings) -> int:
    """Run the service until SIGTERM or SIGINT; returns the exit code."""

    async def main() -> None:
        app = App(settings)
        # Records on the request path have no cycles, so that a collection in the middle of a verdict finds nothing and
        # is only latency. What does have cycles is collected among the chores.
        gc.collect()
        gc.freeze()
        gc.disable()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, app.stop)
        await app.run()

    uvloop.run(main())
    return 0
