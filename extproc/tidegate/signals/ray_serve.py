"""Ray Serve, the metrics page of the node whose proxy is the engine's serving address.

    running              `ray_serve_num_ongoing_requests_at_replicas`: sent to a replica by this node's handles
    waiting              `ray_serve_deployment_queued_queries`: not yet sent

Both are per handle, which is what this proxy, and so this address, has in hand; replicas serve other proxies too. In an
application of several deployments a request is counted once for each that works on it.

It does not say its slots (`max_ongoing_requests` is not on the page), and knows no tokens: where replicas are vLLM's,
give their pages with `metrics=` and the kind `vllm`. What it turns away for backpressure is among all answers of 503,
and not told apart.

The gauges begin with the first request: before it, the page gives a `HalfPage`.

Source: a page of Ray 2.60 (tests/data/signals).
"""

from tidegate.admission.reading import EngineReading
from tidegate.signals.exposition import Exposition

_RUNNING, _WAITING = "ray_serve_num_ongoing_requests_at_replicas", "ray_serve_deployment_queued_queries"

_series = Exposition(_RUNNING, _WAITING)


class RayServeReader:
    """Reads the page of a node of Ray Serve."""

    kind = "ray-serve"
    path = "/metrics"

    def read(self, page: bytes) -> EngineReading:
        """What the page says; both gauges are always on it, of every handle that one of them names."""
        series = _series.page(page)
        series.check_alike(_RUNNING, _WAITING)
        return EngineReading(running=series.count(_RUNNING), waiting=series.count(_WAITING))
