"""Every try of every client as Envoy saw it: its access log, sent to the test."""

from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Self

import grpc
from envoy.service.accesslog.v3 import als_pb2, als_pb2_grpc

from tests.integration.sdk_jobs import JOB_HEADER
from tests.integration.stack import Gateway, eventually
from tidegate.sim.envoy_config import Config, connection_manager

CLUSTER = "tries"
COMPLETED = "http.gateway.downstream_rq_completed"
COUNT_HEADER = "x-stainless-retry-count"
ANSWER_HEADERS = ["retry-after", "retry-after-ms", "x-should-retry", "x-tidegate-reason"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """One try of a job, by Envoy's clock.

    Attributes:
        number: tries that came before it, by the client's own count.
        at_s, answered_s: when its headers came and when the last byte of its answer went, in seconds since 1970.
        reason: of the refusal; empty where the service refused nothing.
        told_ms, told_s: `retry-after-ms` and `retry-after` of the answer; None where it has none.
        should_retry: `x-should-retry` of the answer, or empty.
    """

    number: int
    at_s: float
    answered_s: float
    status: int
    reason: str
    told_ms: int | None
    told_s: int | None
    should_retry: str


class TryLog:
    """Takes Envoy's access log on one port of 127.0.0.1; an async context manager."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._entries_len = 0
        self._tries: defaultdict[str, list[Try]] = defaultdict(list)
        self._server = grpc.aio.server()
        als_pb2_grpc.add_AccessLogServiceServicer_to_server(self, self._server)

    async def __aenter__(self) -> Self:
        assert self._server.add_insecure_port(f"127.0.0.1:{self._port}") == self._port
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(None)

    def configure(self, config: Config) -> None:
        """Let Envoy send its log here."""
        endpoint = {"address": {"socket_address": {"address": "127.0.0.1", "port_value": self._port}}}
        http2 = {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {"http2_protocol_options": {}},
        }
        config["static_resources"]["clusters"].append(
            {
                "name": CLUSTER,
                "type": "STATIC",
                "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2},
                "load_assignment": {"cluster_name": CLUSTER, "endpoints": [{"lb_endpoints": [{"endpoint": endpoint}]}]},
            }
        )
        common = {
            "log_name": CLUSTER,
            "transport_api_version": "V3",
            "buffer_flush_interval": "0.02s",
            "grpc_service": {"envoy_grpc": {"cluster_name": CLUSTER}},
        }
        logger = {
            "@type": "type.googleapis.com/envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig",
            "common_config": common,
            "additional_request_headers_to_log": [JOB_HEADER, COUNT_HEADER],
            "additional_response_headers_to_log": ANSWER_HEADERS,
        }
        connection_manager(config)["access_log"].append(
            {"name": "envoy.access_loggers.http_grpc", "typed_config": logger}
        )

    def of(self, job: str) -> tuple[Try, ...]:
        """The tries of a job that have ended, in order of time."""
        return tuple(sorted(self._tries.get(job, ()), key=lambda each: each.at_s))

    async def complete(self, gateway: Gateway) -> None:
        """Wait until all has come in that Envoy has answered."""

        async def missing() -> int:
            return (await gateway.admin.stats(f"^{COMPLETED}$"))[COMPLETED] - self._entries_len

        await eventually(missing, lambda count: count == 0, what="an entry for every answer")

    async def StreamAccessLogs(self, messages: AsyncIterator[Any], _: Any) -> Any:  # noqa: N802
        """The service's only method."""
        async for message in messages:
            for entry in message.http_logs.log_entry:
                self._entries_len += 1
                if job := entry.request.request_headers.get(JOB_HEADER):
                    self._tries[job].append(_try(entry))
        return als_pb2.StreamAccessLogsResponse()


def _try(entry: Any) -> Try:
    times, answer = entry.common_properties, entry.response.response_headers
    at_s = times.start_time.ToNanoseconds() / 1e9
    told_ms, told_s = answer.get("retry-after-ms"), answer.get("retry-after")
    return Try(
        number=int(entry.request.request_headers[COUNT_HEADER]),
        at_s=at_s,
        answered_s=at_s + times.time_to_last_downstream_tx_byte.ToNanoseconds() / 1e9,
        status=entry.response.response_code.value,
        reason=answer.get("x-tidegate-reason", "").partition(";")[0],
        told_ms=None if told_ms is None else int(told_ms),
        told_s=None if told_s is None else int(told_s),
        should_retry=answer.get("x-should-retry", ""),
    )
