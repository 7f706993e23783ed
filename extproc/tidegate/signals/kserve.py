"""KServe's serverless mode: the page of Knative's queue-proxy beside a model server that has no page of its own.

    running              requests that are in the pod, with the proxy's own queue: the first there is of

                         queue_average_concurrent_requests   port 9090, Knative up to 1.18: mean of the last second
                         kn_serving_queue_depth              port 9091, from 1.19 on, where `request-metrics-protocol`
                                                             is `prometheus`: as it was when the last request came
                         revision_queue_depth                port 9091, before that: the same

A mean is rounded up: half a request was one for half of the time. The proxy does not tell those that the model works on
from those that wait, so `waiting` is None; and it knows no slots and no tokens. A runtime with a page of its own, as
vLLM and Triton have, is better read there, with its own kind and `metrics=`.

Source: Knative's documentation of its metrics and the code that writes them; not seen on a running cluster.
"""

from math import ceil

from tidegate.admission.reading import EngineReading
from tidegate.errors import HalfPage
from tidegate.signals.exposition import Exposition
from tidegate.signals.series import COUNT_MAX

_CONCURRENCY, _DEPTH, _DEPTH_OLD = "queue_average_concurrent_requests", "kn_serving_queue_depth", "revision_queue_depth"

_series = Exposition(_CONCURRENCY, _DEPTH, _DEPTH_OLD)


class KserveReader:
    """Reads the page of Knative's queue-proxy."""

    kind = "kserve"
    path = "/metrics"

    def read(self, page: bytes) -> EngineReading:
        """What the page says; one of the three gauges is always on it."""
        series = _series.page(page)
        name = series.either(_CONCURRENCY, _DEPTH, _DEPTH_OLD)
        running = series.total(name)
        if running > COUNT_MAX:
            raise HalfPage(f"{name} is more than {COUNT_MAX}")
        return EngineReading(running=ceil(running))
