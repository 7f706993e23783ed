"""Hugging Face's text-generation-inference, `/metrics` on its serving port.

    running, waiting     `tgi_batch_current_size`, `tgi_queue_size`
    steps_total          `tgi_batch_inference_count{method="decode"}`: prefills are steps of their own there, in which
                         no sequence that decodes gains a token
    rejections_total     `tgi_request_failure{err="overloaded"}`: its own bound on concurrent requests

It does not say its slots, nor anything of its KV cache (`tgi_batch_current_max_tokens` is of the batch, not of the
engine). It counts tokens when a request ends, not when they come out.

The gauges begin with the first request: before it, the page gives a `HalfPage`.

Source: TGI's documentation of its metrics and the code that sets them; not seen on a running engine.
"""

from tidegate.admission.reading import EngineReading
from tidegate.signals.exposition import Exposition

_RUNNING, _WAITING = "tgi_batch_current_size", "tgi_queue_size"
_CALLS, _FAILURES = "tgi_batch_inference_count", "tgi_request_failure"

_series = Exposition(_RUNNING, _WAITING, _CALLS, _FAILURES)


class TgiReader:
    """Reads TGI's page."""

    kind = "tgi"
    path = "/metrics"

    def read(self, page: bytes) -> EngineReading:
        """What the page says; the batch and the queue are always on it."""
        series = _series.page(page)
        return EngineReading(
            running=series.count(_RUNNING),
            waiting=series.count(_WAITING),
            steps_total=series.total_if_there(_CALLS, method="decode"),
            rejections_total=series.total_if_there(_FAILURES, err="overloaded"),
        )
