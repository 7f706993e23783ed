"""llama.cpp's server, `/metrics` on its serving port, with `--metrics`.

    running, waiting     `requests_processing`, `requests_deferred`
    steps_total          `n_decode_total`: calls of llama_decode, those that only take in a part of a prompt included
    kv_usage             `kv_cache_usage_ratio`, up to 2025: newer servers do not say

It does not say its slots (they are on `/slots`), how large its KV cache is, nor what it refused: its queue has no
bound. Tokens are on the page, but counted when a request ends: in the capture 16 of them stand beside 1465 steps, so
they say nothing about the steps of the same time.

Source: a page of xllamacpp's server (tests/data/signals); the older gauge from llama.cpp's own documentation.
"""

from tidegate.admission.reading import EngineReading
from tidegate.signals.exposition import Exposition

_RUNNING, _WAITING = "llamacpp:requests_processing", "llamacpp:requests_deferred"
_STEPS, _USAGE = "llamacpp:n_decode_total", "llamacpp:kv_cache_usage_ratio"

_series = Exposition(_RUNNING, _WAITING, _STEPS, _USAGE)


class LlamaCppReader:
    """Reads llama.cpp's page."""

    kind = "llamacpp"
    path = "/metrics"

    def read(self, page: bytes) -> EngineReading:
        """What the page says; requests processing and deferred are always on it."""
        series = _series.page(page)
        return EngineReading(
            running=series.count(_RUNNING),
            waiting=series.count(_WAITING),
            kv_usage=series.total_if_there(_USAGE),
            steps_total=series.total_if_there(_STEPS),
        )
