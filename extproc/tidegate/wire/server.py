"""The gRPC server that Envoy talks to: ext_proc streams, access-log streams and health on one port."""

from dataclasses import dataclass

import grpc
import grpc.aio
from envoy.service.accesslog.v3.als_pb2 import StreamAccessLogsMessage, StreamAccessLogsResponse
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from tidegate.errors import FlagError
from tidegate.wire.access_log import AccessLogService
from tidegate.wire.codec import decode, encode
from tidegate.wire.ext_proc import ExtProcService

EXT_PROC = "envoy.service.ext_proc.v3.ExternalProcessor"
ACCESS_LOG = "envoy.service.accesslog.v3.AccessLogService"

_METADATA_BYTES_SOFT = 64 * 1024
_METADATA_BYTES_HARD = 256 * 1024
_KEEPALIVE_MS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the server listens: `HOST:PORT` (port 0 asks the kernel) or `unix:PATH`."""

    listen: str
    message_bytes_max: int


class GrpcServer:
    """Owns the listening socket and the health state."""

    def __init__(self, ext_proc: ExtProcService, access_log: AccessLogService, address: Address) -> None:
        self._server = grpc.aio.server(options=_options(address.message_bytes_max))
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]  # the stubs do not know it
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(
                    EXT_PROC,
                    {
                        "Process": grpc.stream_stream_rpc_method_handler(
                            ext_proc.process, request_deserializer=decode, response_serializer=encode
                        )
                    },
                ),
                grpc.method_handlers_generic_handler(
                    ACCESS_LOG,
                    {
                        "StreamAccessLogs": grpc.stream_unary_rpc_method_handler(
                            access_log.stream_access_logs,
                            request_deserializer=StreamAccessLogsMessage.FromString,
                            response_serializer=StreamAccessLogsResponse.SerializeToString,
                        )
                    },
                ),
            )
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self._listen = address.listen
        self.port = 0

    async def start(self) -> None:
        """Bind and serve; FlagError where the address cannot be bound."""
        try:
            self.port = self._server.add_insecure_port(self._listen)
        except RuntimeError as error:
            raise FlagError(f"--listen: cannot bind {self._listen!r}; is the port free, the address ours?") from error
        await self._server.start()
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)

    async def stop_accepting(self) -> None:
        """Say so to health checks, so that load balancers look elsewhere; open streams go on."""
        await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)

    async def stop(self, grace_s: float) -> None:
        """Close the socket, and every stream still open after `grace_s`."""
        await self._server.stop(grace_s)

    async def _set_health(self, status: health_pb2.HealthCheckResponse.ServingStatus.ValueType) -> None:
        for service in ("", EXT_PROC, ACCESS_LOG):
            await self._health.set(service, status)


def _options(message_bytes_max: int) -> list[tuple[str, int]]:
    return [
        # A body above the limit must be refused by Envoy (413), never by us: a gRPC error would be an unseen admit.
        ("grpc.max_receive_message_length", message_bytes_max + 64 * 1024),
        ("grpc.max_metadata_size", _METADATA_BYTES_SOFT),
        ("grpc.absolute_max_metadata_size", _METADATA_BYTES_HARD),
        # A peer that vanishes (its host gone, stopped) loses its streams, and so its slots, within 15 s.
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        # A bandwidth probe on the way holds keepalive pings back, and its own timeout would be a minute.
        ("grpc.http2.ping_timeout_ms", _KEEPALIVE_MS),
        # Envoy's own keepalive pings are welcome however often they come; the default strikes kill held streams.
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.so_reuseport", 0),
    ]
