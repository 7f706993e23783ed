"""Envoy between the real tidegate and an engine of two ports, as Triton has them: HTTP/1.1, and gRPC."""

import asyncio
import copy
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
from tidegate.sim.envoy_config import Config, cluster, connection_manager, routes
from tidegate.sim.processes import Processes, free_ports

GRPC_CLUSTER = "engine_grpc"
INFER, STREAM = f"/{SERVICE}/ModelInfer", f"/{SERVICE}/ModelStreamInfer"
ON = {"@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "config": {}}


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
    """What a gRPC engine needs of the configuration, in place: a cluster that speaks HTTP/2, routes, its status."""
    engine = copy.deepcopy(cluster(config, "engine"))
    engine["name"] = engine["load_assignment"]["cluster_name"] = GRPC_CLUSTER
    options = engine["typed_extension_protocol_options"]["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"]
    options["explicit_http_config"] = {"http2_protocol_options": {}}
    endpoint = engine["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]
    endpoint["address"]["socket_address"]["port_value"] = port
    config["static_resources"]["clusters"].append(engine)
    by_name = {route["name"]: route for route in routes(config)}
    to_grpc = copy.deepcopy(by_name["inference-kserve"]["route"]) | {"cluster": GRPC_CLUSTER}
    bypass = copy.deepcopy(by_name["bypass"]) | {"name": "bypass-grpc", "route": to_grpc}
    bypass["match"]["prefix"] = f"/{SERVICE}/"
    host = connection_manager(config)["route_config"]["virtual_hosts"][0]
    host["routes"][:0] = [
        {"name": "kserve-stream", "match": {"path": STREAM}, "route": {"cluster": GRPC_CLUSTER, "timeout": "0s"}},
        bypass,
        {
            "name": "inference-kserve-grpc",
            "match": {"path": INFER},
            "request_body_buffer_limit": 33554432,
            "route": to_grpc,
            "typed_per_filter_config": {"tidegate": ON},
        },
        {"name": "kserve-other", "match": {"prefix": f"/{SERVICE}/"}, "route": {"cluster": GRPC_CLUSTER}},
    ]
    outcomes = connection_manager(config)["access_log"][0]["typed_config"]["common_config"]
    outcomes["custom_tags"].append({"tag": "grpc_status", "value": "%GRPC_STATUS_NUMBER%"})


@asynccontextmanager
async def kserve_stack(log_dir: Path, *, policy: Mapping[str, str | None] | None = None) -> AsyncIterator[KServeStack]:
    """Start all of it, with these keys of the policy."""
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
            edit=lambda config: with_grpc_engine(config, grpc_port),
        )
        address = gateway["url"].removeprefix("http://")
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(address))
        running = KServeStack(**gateway, engine=engine, service=service, grpc_engine=grpc_engine, channel=channel)
        try:
            yield running
        finally:
            await running.leave()
