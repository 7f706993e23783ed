"""The whole stack on one machine: the simulated engine, the service, Envoy in front, and the policy between them."""

from dataclasses import dataclass

from tidegate.sim.envoy_admin import AdminClient
from tidegate.sim.envoy_config import render_envoy, shipped_template
from tidegate.sim.launch import start_engine, start_envoy, start_tidegate
from tidegate.sim.load import TENANT_HEADER
from tidegate.sim.processes import Child, ProcessError, Processes, free_ports
from tidegate.sim.profiles import EngineProfile
from tidegate.sim.report import Objective

BYPASS_KEY = "admission.bypass_percent"
LOG_TAIL_CHARS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Where each part listens on 127.0.0.1; the fields' names are for people too."""

    gateway: int
    admin: int
    grpc: int
    ops: int
    engine: int

    @classmethod
    def free(cls) -> "Ports":
        """Ports that nobody uses."""
        gateway, admin, grpc, ops, engine = free_ports(5)
        return cls(gateway=gateway, admin=admin, grpc=grpc, ops=ops, engine=engine)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What runs: the engine (at its own pace, then slowed by `time_scale`), its seed, and what its clients want."""

    engine: EngineProfile
    time_scale: float
    seed: int
    objective: Objective
    client_timeout_s: float


def policy_of(setup: Setup) -> dict[str, str | None]:
    """The `tidegate-*` keys that an operator of this engine would write."""
    return {
        "tidegate-pool": "demo",
        "tidegate-slots-max": str(setup.engine.slots),
        "tidegate-kv-tokens-max": str(setup.engine.kv_tokens),
        "tidegate-batched-tokens-max": str(setup.engine.batched_tokens),
        "tidegate-ttft-budget-ms": str(round(setup.objective.ttft_s * 1000)),
        "tidegate-tpot-target-ms": str(round(setup.objective.tpot_s * 1000)),
        "tidegate-client-timeout-ms": str(round(setup.client_timeout_s * 1000)),
        "tidegate-tenant-from": f"header:{TENANT_HEADER}",
    }


class Stack:
    """The running parts. `start` them once; the engine can be replaced by a fresh one at any time."""

    def __init__(self, processes: Processes, ports: Ports, setup: Setup) -> None:
        self.ports = ports
        self.setup = setup
        self._processes = processes
        self._children: list[Child] = []
        self._engine: Child | None = None

    @property
    def url(self) -> str:
        """The chat completions endpoint behind the gateway."""
        return f"http://127.0.0.1:{self.ports.gateway}/v1/chat/completions"

    @property
    def cpu_s(self) -> float:
        """Processor seconds of all parts so far, those of replaced engines included."""
        return sum(child.cpu_s for child in self._children)

    async def start(self) -> None:
        """Start all parts.

        Raises:
            ProcessError: one did not come up; the message holds the end of its log.
        """
        await self.fresh_engine()
        tidegate = await start_tidegate(self._processes, port=self.ports.grpc, ops_port=self.ports.ops)
        self._children.append(tidegate)
        config = render_envoy(
            shipped_template(),
            gateway_port=self.ports.gateway,
            admin_port=self.ports.admin,
            ext_proc_port=self.ports.grpc,
            engines=[f"127.0.0.1:{self.ports.engine}"],
            policy=policy_of(self.setup),
        )
        self._children.append(await start_envoy(self._processes, config, admin_port=self.ports.admin))

    async def fresh_engine(self) -> None:
        """An engine without a past, on the same port.

        Raises:
            ProcessError: it did not come up.
        """
        if self._engine is not None:
            await self._engine.stop()
        engine = self.setup.engine
        self._engine = await start_engine(
            self._processes,
            port=self.ports.engine,
            arguments=[
                *("--profile", engine.name),
                *("--slots", str(engine.slots)),
                *("--kv-tokens", str(engine.kv_tokens)),
                *("--batched-tokens", str(engine.batched_tokens)),
                *("--time-scale", f"{self.setup.time_scale:g}"),
                *("--seed", str(self.setup.seed)),
            ],
        )
        self._children.append(self._engine)

    async def bypass(self, admin: AdminClient, *, on: bool) -> None:
        """The kill switch: with it on, requests go past the service straight to the engine."""
        await admin.runtime_modify(**{BYPASS_KEY: "100" if on else "0"})

    def check(self) -> None:
        """Make sure that all parts still run.

        Raises:
            ProcessError: one has ended; the message holds the end of its log.
        """
        for child in self._children:
            if child.returncode is not None and (child is self._engine or child.name != "engine"):
                tail = child.log_text()[-LOG_TAIL_CHARS:]
                raise ProcessError(f"{child.name} ended with status {child.returncode}\n{tail}")
