"""Asks what it is told, with NVIDIA's own client library: a job a line on stdin, how each ended a line on stdout.

argv is the gateway's HOST:PORT, for both protocols. A job is `{"over": "http" | "grpc", "ask": ..., "number": ...}`:

    infer    one inference on a tensor of that number, and the number in its answer
    stream   the same as the only message of a bidirectional stream, over gRPC
    live     whether the server lives

`status`, `message` and `headers` are of a refusal. The library shows callers no headers: they are read underneath it.
"""

import json
import queue
import sys
from typing import Any

import numpy as np
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

MODEL, INPUT, OUTPUT = "resnet", "X", "Y"
TIMEOUT_S = 20.0
HEADERS = ("retry-after", "retry-after-ms", "x-tidegate-reason", "content-type")


class HttpClient(tritonclient.http.InferenceServerClient):
    """The library's client, which also keeps some headers of its latest answer."""

    seen: dict[str, str]

    def _post(self, *args: Any, **kwargs: Any) -> Any:
        response = super()._post(*args, **kwargs)
        self.seen = {name: value for name in HEADERS if (value := response.get(name)) is not None}
        return response


def tensor(library: Any, number: float) -> list[Any]:
    """One input that holds the number alone."""
    data = np.array([[number]], dtype=np.float32)
    each = library.InferInput(INPUT, data.shape, "FP32")
    each.set_data_from_numpy(data)
    return [each]


def number_of(result: Any) -> float:
    """The number in an answer."""
    return float(result.as_numpy(OUTPUT)[0][0])


def stream(client: tritonclient.grpc.InferenceServerClient, number: float) -> float:
    """Send one message on a stream of its own, and read one."""
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)), stream_timeout=TIMEOUT_S)
    client.async_stream_infer(MODEL, tensor(tritonclient.grpc, number))
    result, error = answers.get(timeout=TIMEOUT_S)
    client.stop_stream()
    if error is not None:
        raise error
    return number_of(result)


def done(job: dict[str, Any], http: HttpClient, grpc: tritonclient.grpc.InferenceServerClient) -> dict[str, Any]:
    """Do one job."""
    try:
        match job["over"], job["ask"]:
            case "http", "infer":
                return {"number": number_of(http.infer(MODEL, tensor(tritonclient.http, job["number"])))}
            case "grpc", "infer":
                return {"number": number_of(grpc.infer(MODEL, tensor(tritonclient.grpc, job["number"])))}
            case "grpc", "stream":
                return {"number": stream(grpc, job["number"])}
            case "http", "live":
                return {"live": http.is_server_live()}
            case "grpc", "live":
                return {"live": grpc.is_server_live()}
    except InferenceServerException as error:
        headers = http.seen if job["over"] == "http" else {}
        return {"status": error.status(), "message": error.message(), "headers": headers}
    raise ValueError(job)


def main(address: str) -> None:
    """Do the jobs as they come, until stdin ends."""
    http = HttpClient(address, connection_timeout=TIMEOUT_S, network_timeout=TIMEOUT_S)
    grpc = tritonclient.grpc.InferenceServerClient(address)
    for line in sys.stdin:
        print(json.dumps(done(json.loads(line), http, grpc)), flush=True)
    http.close()
    grpc.close()


if __name__ == "__main__":
    main(sys.argv[1])
