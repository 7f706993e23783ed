"""The ways to the engine that are compared, all of the shipped envoy.yaml with one worker thread, all running at
once: those that are not measured idle.
"""

import sys
from asyncio import open_connection
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from tidegate.sim.envoy_config import Config, render_envoy, shipped_template
from tidegate.sim.launch import start_envoy, start_tidegate
from tidegate.sim.processes import Child, Processes, Ready, free_ports, http_ready

BYPASS_KEY = "admission.bypass_percent"
POLICY = {
    # Room for all at once: holding would be measured as latency.
    "tidegate-slots-max": "1024",
    "tidegate-kv-tokens-max": "100000000",
    "tidegate-batched-tokens-max": "10000000",
    "tidegate-engines": ",".join(f"10.0.0.{number}:80" for number in range(64)),  # as fast as this one answers
}


class Way(StrEnum):
    """How a request gets to the engine; the values are for the table."""

    ENVOY = "a  Envoy alone"
    FLOOR = "b  + bare ext_proc"
    WINDOW = "c  + Tidegate, window"
    NGRAM = "d  + Tidegate, n-grams"


ESTIMATORS = {Way.WINDOW: "window", Way.NGRAM: "ngram"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """A running Envoy, and the service it asks if it asks one."""

    way: Way
    port: int
    envoy: Child
    service: Child | None


class Gateways:
    """Starts the engine and all ways to it.

    Attributes:
        ops_ports: where each Tidegate shows its counters.
    """

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._engine_port, *ops_ports = free_ports(1 + len(ESTIMATORS))
        self.ops_ports = dict(zip(ESTIMATORS, ops_ports, strict=True))

    async def start(self) -> list[Gateway]:
        """All of them, ready; ProcessError where one is not."""
        ready = http_ready(f"http://127.0.0.1:{self._engine_port}/")
        await self._start_own("engine", self._engine_port, ready)
        return [await self._gateway(way) for way in Way]

    async def counters(self, way: Way) -> dict[str, float]:
        """That Tidegate's decisions and outcomes so far, as `decisions admit` and `outcomes complete`."""
        url = f"http://127.0.0.1:{self.ops_ports[way]}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            page = await response.text()
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                label = {"tidegate_decisions_total": "decision", "tidegate_outcomes_total": "ending"}.get(sample.name)
                if label is not None:
                    name = f"{family.name.removeprefix('tidegate_')} {sample.labels[label]}"
                    found[name] = found.get(name, 0) + sample.value
        return found

    async def _gateway(self, way: Way) -> Gateway:
        port, admin_port, service_port = free_ports(3)
        service = await self._service(way, service_port)
        config = render_envoy(
            shipped_template(),
            gateway_port=port,
            admin_port=admin_port,
            ext_proc_port=service_port,
            engines=[f"127.0.0.1:{self._engine_port}"],
            policy=POLICY | ({"tidegate-estimator": ESTIMATORS[way]} if way in ESTIMATORS else {}),
            edit=switch_off if way is Way.ENVOY else None,
        )
        envoy = await start_envoy(self._processes, config, admin_port=admin_port, name=f"envoy-{way.name.lower()}")
        return Gateway(way=way, port=port, envoy=envoy, service=service)

    async def _service(self, way: Way, port: int) -> Child | None:
        match way:
            case Way.ENVOY:
                return None
            case Way.FLOOR:
                return await self._start_own("floor", port, tcp_ready(port))
            case Way.WINDOW | Way.NGRAM:
                name = f"tidegate-{ESTIMATORS[way]}"
                return await start_tidegate(self._processes, port=port, ops_port=self.ops_ports[way], name=name)
            case _:
                assert_never(way)

    async def _start_own(self, module: str, port: int, ready: Ready) -> Child:
        command = [sys.executable, "-m", f"bench.overhead.{module}", str(port)]
        return await self._processes.start(module, command, ready=ready)


def switch_off(config: Config) -> None:
    """The kill switch: every request goes past the service, and past the filters that read answers for it."""
    for layer in config["layered_runtime"]["layers"]:
        if "static_layer" in layer:
            layer["static_layer"][BYPASS_KEY] = 100


def tcp_ready(port: int) -> Ready:
    """Ready once something listens on the port of 127.0.0.1."""

    async def ready() -> bool:
        with suppress(OSError):
            _, writer = await open_connection("127.0.0.1", port)
            writer.close()
            return True
        return False

    return ready
