"""NVIDIA Triton, `/metrics` on its metrics port (8002); its models may or may not have tokens.

    waiting              `nv_inference_pending_request_count`: requests that no backend has begun to execute
    rejections_total     `nv_inference_request_failure{reason="REJECTED"}`: those whose wait in its queue timed out.
                         What it turns away because the queue is full is counted nowhere
    memory_free_mib      `nv_gpu_memory_total_bytes` less `nv_gpu_memory_used_bytes`, of the GPU that has the least

It does not say how many requests it works on: without the backend below, `running` is None.

Where its models run on the tensorrtllm backend, the page also has

    running              `nv_trt_llm_request_metrics{request_type="scheduled"}`
    waiting              its `waiting` (active, but not scheduled), added to those that are pending
    slots                its `max`
    kv_usage             `nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction"}`
    kv_tokens_max        its `max` x `tokens_per`, where one model has them
    steps_total          `nv_trt_llm_general_metrics{general_type="iteration_counter"}`

Models on one page are summed, their usage and steps averaged.

Source: a page of Triton 2.51 (tests/data/signals); the backend's gauges from TensorRT-LLM's documentation and code, not
seen on a running engine.
"""

from tidegate.admission.reading import EngineReading
from tidegate.signals.exposition import Exposition
from tidegate.signals.series import Page, tokens_of

_PENDING, _FAILURES = "nv_inference_pending_request_count", "nv_inference_request_failure"
_GPU_TOTAL, _GPU_USED = "nv_gpu_memory_total_bytes", "nv_gpu_memory_used_bytes"
_REQUESTS, _BLOCKS = "nv_trt_llm_request_metrics", "nv_trt_llm_kv_cache_block_metrics"
_GENERAL = "nv_trt_llm_general_metrics"
_MIB = 1024.0 * 1024.0

_series = Exposition(_PENDING, _FAILURES, _GPU_TOTAL, _GPU_USED, _REQUESTS, _BLOCKS, _GENERAL)


class TritonReader:
    """Reads Triton's page, with or without the tensorrtllm backend."""

    kind = "triton"
    path = "/metrics"

    def read(self, page: bytes) -> EngineReading:
        """What the page says; pending requests are always on it, and with the backend its requests and blocks."""
        series = _series.page(page)
        pending = series.count(_PENDING)
        rejections, memory_mib = series.total_if_there(_FAILURES, reason="REJECTED"), _memory_free_mib(series)
        if not (series.has(_REQUESTS) or series.has(_BLOCKS)):
            return EngineReading(waiting=pending, rejections_total=rejections, memory_free_mib=memory_mib)
        return EngineReading(
            running=series.count(_REQUESTS, request_type="scheduled"),
            waiting=pending + series.count(_REQUESTS, request_type="waiting"),
            slots=series.count_if_there(_REQUESTS, request_type="max"),
            kv_usage=series.share(_BLOCKS, kv_cache_block_type="fraction"),
            kv_tokens_max=_kv_tokens_max(series),
            steps_total=series.mean_if_there(_GENERAL, general_type="iteration_counter"),
            rejections_total=rejections,
            memory_free_mib=memory_mib,
        )


def _memory_free_mib(series: Page) -> float | None:
    """None unless both figures are there of the same GPUs, and make sense."""
    total = {frozenset(gpu.labels.items()): gpu.value for gpu in series.samples_if_there(_GPU_TOTAL)}
    used = {frozenset(gpu.labels.items()): gpu.value for gpu in series.samples_if_there(_GPU_USED)}
    if not total or total.keys() != used.keys():
        return None
    free_bytes = min(total[gpu] - used[gpu] for gpu in total)
    return free_bytes / _MIB if free_bytes >= 0.0 else None


def _kv_tokens_max(series: Page) -> int | None:
    blocks = series.samples_if_there(_BLOCKS, kv_cache_block_type="max")
    block_tokens = series.samples_if_there(_BLOCKS, kv_cache_block_type="tokens_per")
    if len(blocks) != 1 or len(block_tokens) != 1:
        return None
    return tokens_of(blocks[0].value, block_tokens[0].value)
