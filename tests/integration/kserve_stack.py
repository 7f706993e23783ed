"""Envoy between the real tidegate and an engine of two ports, as Triton has them: HTTP/1.1, and gRPC."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from tests.integration.kserve_engine import KServeEngine
from tests.integration.puppet_engine import PuppetEngine
from tests.integration.puppet_stack import PuppetStack
from tests.integration.running_service import start_service
from tests.integration.stack import start_gateway
from tests.kserve_messages import SERVICE, TYPES, infer_request
from tidegate.sim.envoy_config import Config, cluster, routes
from tidegate.sim.processes import Processes, free_ports

GRPC_CLUSTER = "engine_grpc"
INFER, STREAM = f"/{SERVICE}/ModelInfer", f"/{SERVICE}/ModelStreamInfer"


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcAnswer:
    """How a unary call ended; `metadata` is of both ends of the answer, names in lower case."""

    code: grpc.StatusCode
    details: str
    metadata: Mapping[str, str]
    message: Any = None


@dataclass(slots=True, kw_only=True)
class KServeStack(PuppetStack):
    """A puppet stack with a gRPC engine beside the HTTP one, and a gRPC client."""

    grpc_engine: KServeEngine
    channel: grpc.aio.Channel

    def infer(self, request: Any = None, *, timeout_s: float = 20.0, **fields: Any) -> asyncio.Task[GrpcAnswer]:
        """Ask over gRPC; cancel the task to leave. `fields` are of `infer_request`."""
        message = infer_request(**fields) if request is None else request
        task = asyncio.create_task(self._infer(message, timeout_s))
        self._asked.append(task)  # type: ignore[arg-type]  # they are only ever cancelled
        return task

    async def _infer(self, message: Any, timeout_s: float) -> GrpcAnswer:
        method: Any = self.channel.unary_unary(
            INFER,
            request_serializer=TYPES["ModelInferRequest"].SerializeToString,
            response_deserializer=TYPES["ModelInferResponse"].FromString,
        )
        call = method(message, timeout=timeout_s)
        try:
            answer = await call
        except grpc.aio.AioRpcError as error:
            both = [*(error.initial_metadata() or ()), *(error.trailing_metadata() or ())]
            return GrpcAnswer(code=error.code(), details=error.details() or "", metadata=dict(both))
        both = [*(await call.initial_metadata()), *(await call.trailing_metadata())]
        return GrpcAnswer(code=grpc.StatusCode.OK, details="", metadata=dict(both), message=answer)


def with_grpc_engine(config: Config, port: int) -> None:
    """Point the shipped cluster of the engines' gRPC port to this one, in place."""
    endpoint = cluster(config, GRPC_CLUSTER)["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]
    endpoint["address"]["socket_address"]["port_value"] = port


def with_grpc_pool(config: Config, port: int) -> None:
    """Give gRPC a pool of its own, whose engines tidegate chooses among, in place."""
    keys = {"tidegate-pool": "grpc", "tidegate-engines": f"127.0.0.1:{port}", "tidegate-steer": "on"}
    (route,) = (route for route in routes(config) if route["name"] == "inference-grpc")
    route["typed_per_filter_config"]["tidegate"] = {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute",
        "overrides": {"grpc_initial_metadata": [{"key": key, "value": value} for key, value in keys.items()]},
    }


@asynccontextmanager
async def kserve_stack(
    log_dir: Path, *, policy: Mapping[str, str | None] | None = None, own_pool: bool = False
) -> AsyncIterator[KServeStack]:
    """Start all of it, with these keys of the policy; `own_pool` steers gRPC in a pool of its own."""

    def edit(config: Config) -> None:
        with_grpc_engine(config, grpc_port)
        if own_pool:
            with_grpc_pool(config, grpc_port)

    port, ops_port, engine_port, grpc_port = free_ports(4)
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(PuppetEngine(engine_port))
        grpc_engine = await stack.enter_async_context(KServeEngine(grpc_port))
        processes = await stack.enter_async_context(Processes(log_dir))
        service = await start_service(processes, port=port, ops_port=ops_port)
        gateway = await start_gateway(
            stack,
            processes,
            ext_proc_port=port,
            engines=[f"127.0.0.1:{engine_port}"],
            policy=policy,
            edit=edit,
        )
        address = gateway["url"].removeprefix("http://")
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(address))
        running = KServeStack(**gateway, engine=engine, service=service, grpc_engine=grpc_engine, channel=channel)
        try:
            yield running
        finally:
            await running.leave()
