"""Rounds: one run through each way, in turn, so that a noisy minute of the machine meets all of them."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.overhead.gateways import Gateway, Way
from bench.overhead.load import Generator, LoadResult

SETTLE_S = 0.25
"""Envoy reports finished requests in batches every 50 ms; what settling them costs belongs to the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run through one way; CPU in microseconds a request, `service_us` 0 where there is none."""

    load: LoadResult
    envoy_us: float
    service_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured: `requests` at `connections` at once and `single_requests` one after the other, a round."""

    rounds: int = 5
    connections: int = 16
    requests: int = 4000
    single_requests: int = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """All runs through one way: with many connections, and with one."""

    busy: list[Run]
    single: list[Run]


async def measure(
    gateways: Sequence[Gateway], generator: Generator, plan: Plan, *, report: Callable[[str], None]
) -> dict[Way, Rounds]:
    """Warm each way up, then run the rounds; `report` is told what is being done."""
    rounds = {gateway.way: Rounds(busy=[], single=[]) for gateway in gateways}
    for gateway in gateways:
        report(f"warming up: {gateway.way}")
        await generator.run(gateway.port, connections=plan.connections, requests=plan.requests)
    for number in range(1, plan.rounds + 1):
        for gateway in gateways:
            report(f"round {number} of {plan.rounds}: {gateway.way}")
            found = rounds[gateway.way]
            found.busy.append(await _run(gateway, generator, connections=plan.connections, requests=plan.requests))
            found.single.append(await _run(gateway, generator, connections=1, requests=plan.single_requests))
    return rounds


async def _run(gateway: Gateway, generator: Generator, *, connections: int, requests: int) -> Run:
    envoy_s, service_s = _cpu_s(gateway)
    load = await generator.run(gateway.port, connections=connections, requests=requests)
    await asyncio.sleep(SETTLE_S)
    envoy_end_s, service_end_s = _cpu_s(gateway)
    return Run(
        load=load,
        envoy_us=(envoy_end_s - envoy_s) * 1e6 / load.requests,
        service_us=(service_end_s - service_s) * 1e6 / load.requests,
    )


def _cpu_s(gateway: Gateway) -> tuple[float, float]:
    return gateway.envoy.cpu_s, 0.0 if gateway.service is None else gateway.service.cpu_s
