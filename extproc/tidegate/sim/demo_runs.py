"""The runs of the demo: a fresh engine, the kill switch on or off, the phase's requests, and what everybody counted."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import aiohttp
from rich.console import Console

from tidegate.sim import scenario
from tidegate.sim.arrivals import Arrival
from tidegate.sim.demo_view import RunView
from tidegate.sim.envoy_admin import AdminClient
from tidegate.sim.envoy_report import requests_by_decision
from tidegate.sim.load import Target, drive
from tidegate.sim.record import Record
from tidegate.sim.report import Control, RunResult, figures_of
from tidegate.sim.scenario import Phase
from tidegate.sim.stack import Stack

DRAIN_S_MAX = 12.0
"""Longest wait for open requests after the last was sent: patience, plus a long answer. What is open then is cut."""
TICK_S = 0.25
WARM_UP_TOKENS = 8


class DemoRuns:
    """Makes one run after the other on a running stack.

    Args:
        seconds: how long each run sends requests.
        seed: of arrivals and lengths, the same for both sides of a phase.
    """

    def __init__(self, stack: Stack, admin: AdminClient, console: Console, *, seconds: float, seed: int) -> None:
        self._stack = stack
        self._admin = admin
        self._console = console
        self._seconds = seconds
        self._seed = seed
        self._target = Target(
            url=stack.url, patience=scenario.PATIENCE, openings=scenario.OPENINGS, drain_s_max=DRAIN_S_MAX
        )

    async def warm_up(self) -> None:
        """One request through the service, so that it knows the pool: a new pool starts small and grows for 10 s."""
        await self._stack.bypass(self._admin, on=False)
        hello = Arrival(
            at_s=0.0,
            tenant=scenario.QUIET,
            prompt_tokens=WARM_UP_TOKENS,
            completion_tokens=WARM_UP_TOKENS,
            completion_tokens_max=WARM_UP_TOKENS,
        )
        await self._watched(drive((hello,), self._target), lambda _: None)

    async def run(self, phase: Phase, control: Control) -> RunResult:
        """One phase on a fresh engine, without or with the service.

        Raises:
            ProcessError: a part ended on the way.
        """
        await self._stack.fresh_engine()
        await self._stack.bypass(self._admin, on=control is Control.WITHOUT)
        arrivals = phase.arrivals(duration_s=self._seconds, seed=self._seed)
        before = requests_by_decision(await self._admin.prometheus())
        start_s, start_cpu_s = time.monotonic(), self._cpu_s()
        with RunView(self._console, phase, control, self._seconds) as view:
            records = await self._watched(drive(arrivals, self._target, on_record=view.add), view.tick)
        cores = (self._cpu_s() - start_cpu_s) / (time.monotonic() - start_s)
        engine = await self._engine_stats()
        decided = requests_by_decision(await self._admin.prometheus()) - before
        return RunResult(
            phase=phase.name,
            control=control,
            figures=figures_of(records, scenario.OBJECTIVE, duration_s=self._seconds, quiet_tenant=scenario.QUIET),
            tokens_generated=engine["completion_tokens"],
            tokens_wasted=engine["wasted_tokens"],
            prompt_tokens_wasted=engine["wasted_prefill_tokens"],
            preemptions=engine["preemptions"],
            envoy_requests=dict(decided),
            cores=cores,
        )

    async def _watched(
        self, load: Coroutine[Any, Any, tuple[Record, ...]], tick: Callable[[float], None]
    ) -> tuple[Record, ...]:
        """Drive the load while the parts are watched: a part that ends stops the run at once."""
        start_s = time.monotonic()
        task = asyncio.create_task(load)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=TICK_S)
                tick(time.monotonic() - start_s)
                self._stack.check()
            return task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _cpu_s(self) -> float:
        """Processor seconds of every part and of this process, which plays the clients."""
        return self._stack.cpu_s + time.process_time()

    async def _engine_stats(self) -> dict[str, int]:
        url = f"http://127.0.0.1:{self._stack.ports.engine}/sim/stats"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            counters: dict[str, int] = await response.json()
            return counters
