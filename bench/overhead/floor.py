"""The floor: the least that an ext_proc service in Python can do. `python -m bench.overhead.floor PORT`.

It reads the same messages with the same library on the same event loop as Tidegate, looks at nothing in them, and
answers constants. What it costs is gRPC's; what Tidegate costs beyond it is Tidegate's.
"""

import sys
from typing import Any

import grpc
import grpc.aio
import uvloop
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as pb_grpc

_END: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs do not know it
_GO_ON = pb.CommonResponse()
_ANSWERS = {
    "request_headers": pb.ProcessingResponse(request_headers=pb.HeadersResponse(response=_GO_ON)),
    "request_body": pb.ProcessingResponse(request_body=pb.BodyResponse(response=_GO_ON)),
    "response_trailers": pb.ProcessingResponse(response_trailers=pb.TrailersResponse()),
}


class Floor:
    """Admits everything."""

    async def Process(self, _requests: Any, stream: Any) -> None:  # noqa: N802 -- gRPC looks for this name
        """One stream; reading and writing cost less than an async generator of answers."""
        while (message := await stream.read()) is not _END:
            await stream.write(_ANSWERS[message.WhichOneof("request")])


async def serve(port: int) -> None:
    """Answer until the process is ended."""
    server = grpc.aio.server(options=[("grpc.http2.max_ping_strikes", 0), ("grpc.so_reuseport", 0)])
    pb_grpc.add_ExternalProcessorServicer_to_server(Floor(), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
