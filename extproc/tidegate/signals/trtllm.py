"""TensorRT-LLM's own server, trtllm-serve: `/prometheus/metrics`, or `/metrics`, both on its serving port.

`/prometheus/metrics` is there with `return_perf_metrics`, with gauges of the last iteration in versions after 1.1:

    running, waiting     `trtllm_num_requests_running`, `trtllm_num_requests_waiting`
    slots                `trtllm_max_num_active_requests`
    kv_usage             `trtllm_kv_cache_utilization`
    kv_tokens_max        `trtllm_kv_cache_max_blocks` x `trtllm_kv_cache_tokens_per_block`

`/metrics` is JSON: a list of the iterations since somebody last asked, each read once and then gone. The last counts.

    running, waiting     `numActiveRequests`, `numQueuedRequests`
    slots                `maxNumActiveRequests`
    kv_usage             `usedNumBlocks` / `maxNumBlocks` of `kvCacheStats`
    kv_tokens_max        `maxNumBlocks` x `tokensPerBlock` of `kvCacheStats`
    steps_total          `iter`

An empty list says that there was no iteration since: nothing else is known then, and all is None. The gauges begin with
the first iteration, so that a server that never had a request gives a `HalfPage`; after the last request they stay as
its last iteration left them.

It does not say what it refused or evicted. It counts tokens when a request ends, not when they come out. Behind Triton,
with the tensorrtllm backend, the page is Triton's: kind `triton`.

Source: TensorRT-LLM's documentation and the code that writes both pages; not seen on a running engine.
"""

import msgspec

from tidegate.admission.reading import EngineReading
from tidegate.errors import HalfPage
from tidegate.signals.exposition import Exposition
from tidegate.signals.series import COUNT_MAX, Page, tokens_of

JSON_BYTES_MAX = 8 * 1024 * 1024

_RUNNING, _WAITING = "trtllm_num_requests_running", "trtllm_num_requests_waiting"
_SLOTS, _USAGE = "trtllm_max_num_active_requests", "trtllm_kv_cache_utilization"
_BLOCKS, _BLOCK_TOKENS = "trtllm_kv_cache_max_blocks", "trtllm_kv_cache_tokens_per_block"
_ERROR_CHARS_MAX = 200

_series = Exposition(_RUNNING, _WAITING, _SLOTS, _USAGE, _BLOCKS, _BLOCK_TOKENS)


class _KvCacheStats(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    max_num_blocks: float | None = None
    used_num_blocks: float | None = None
    tokens_per_block: float | None = None


class _Iteration(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    # What has no default must be there: so each object of the list takes 20 bytes of the page or more, and a page of
    # nothing but brackets cannot grow into millions of them.
    num_active_requests: int
    num_queued_requests: int | None = None
    max_num_active_requests: int | None = None
    iter: float | None = None
    kv_cache_stats: _KvCacheStats | None = None


_iterations = msgspec.json.Decoder(list[_Iteration])


class TrtllmReader:
    """Reads either page of trtllm-serve."""

    kind = "trtllm"
    path = "/prometheus/metrics"

    def read(self, page: bytes) -> EngineReading:
        """What the page says; running requests are always on it, unless it is JSON without an iteration."""
        if page.lstrip()[:1] == b"[":
            iterations = _decoded(page)
            return _of_iteration(iterations[-1]) if iterations else EngineReading()
        return _of_series(_series.page(page))


def _of_series(series: Page) -> EngineReading:
    series.check_alike(_RUNNING, _WAITING)
    blocks, block_tokens = series.total_if_there(_BLOCKS), series.mean_if_there(_BLOCK_TOKENS)
    return EngineReading(
        running=series.count(_RUNNING),
        waiting=series.count(_WAITING),
        slots=series.count_if_there(_SLOTS),
        kv_usage=series.share(_USAGE) if series.has(_USAGE) else None,
        kv_tokens_max=tokens_of(blocks, block_tokens),
    )


def _decoded(page: bytes) -> list[_Iteration]:
    if len(page) > JSON_BYTES_MAX:
        raise HalfPage(f"more than {JSON_BYTES_MAX} bytes of iteration statistics")
    try:
        return _iterations.decode(page)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise HalfPage(f"iteration statistics: {str(error)[:_ERROR_CHARS_MAX]}") from None


def _of_iteration(last: _Iteration) -> EngineReading:
    kv = last.kv_cache_stats or _KvCacheStats()
    if not 0 <= last.num_active_requests <= COUNT_MAX:
        raise HalfPage(f"numActiveRequests is not from 0 to {COUNT_MAX}")
    return EngineReading(
        running=last.num_active_requests,
        waiting=last.num_queued_requests,
        slots=last.max_num_active_requests,
        kv_usage=_usage(kv),
        kv_tokens_max=tokens_of(kv.max_num_blocks, kv.tokens_per_block),
        steps_total=last.iter,
    )


def _usage(kv: _KvCacheStats) -> float | None:
    if kv.used_num_blocks is None or not kv.max_num_blocks:
        return None
    return kv.used_num_blocks / kv.max_num_blocks
