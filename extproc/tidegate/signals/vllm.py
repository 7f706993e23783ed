"""vLLM, `/metrics` on its serving port: V1 from 0.8 on, and what V0 has of the same.

    running, waiting     `num_requests_running`, `num_requests_waiting`; the latter with those deferred (remote KV)
    kv_usage             `kv_cache_usage_perc`; `gpu_cache_usage_perc` up to 0.10. 0 to 1 in spite of its name
    kv_tokens_max        labels of `cache_config_info`: `kv_cache_size_tokens`, else `num_gpu_blocks` x `block_size`
    steps_total          `iteration_tokens_total_count`: steps that gave a token
    tokens_total         `iteration_tokens_total_sum`; without it, prompt tokens and generation tokens
    preemptions_total    `num_preemptions_total`
    rejections_total     `admission_rejections_total`: its own bounds on its queue, where it has them
    ready                False where `engine_sleep_state{sleep_state="awake"}` is 0

It does not say how many sequences it runs at most (`max_num_seqs`), nor how much memory is free: it takes all that it
may use when it starts.

Data parallel engines share a page, one `engine` label each. They read as one engine as wide as all: sequences, tokens
and capacity are summed, usage is their mean. Steps are their mean too, because a sequence gains a token with each step
of its own engine and none with the others'.

Source: pages of vLLM 0.32 (tests/data/signals); older names from vLLM's documentation of its metrics.
"""

from tidegate.admission.reading import EngineReading
from tidegate.signals.exposition import Exposition
from tidegate.signals.series import Page, Sample, tokens_of, whole_of

_RUNNING, _WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
_USAGE, _USAGE_OLD = "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"
_CACHE = "vllm:cache_config_info"
_STEPS, _STEP_TOKENS = "vllm:iteration_tokens_total_count", "vllm:iteration_tokens_total_sum"
_PROMPT, _GENERATED = "vllm:prompt_tokens_total", "vllm:generation_tokens_total"
_PREEMPTIONS, _REJECTIONS = "vllm:num_preemptions_total", "vllm:admission_rejections_total"
_SLEEP = "vllm:engine_sleep_state"

_series = Exposition(
    _RUNNING,
    _WAITING,
    _USAGE,
    _USAGE_OLD,
    _CACHE,
    _STEPS,
    _STEP_TOKENS,
    _PROMPT,
    _GENERATED,
    _PREEMPTIONS,
    _REJECTIONS,
    _SLEEP,
)


class VllmReader:
    """Reads vLLM's page."""

    kind = "vllm"
    path = "/metrics"

    def read(self, page: bytes) -> EngineReading:
        """What the page says; running, waiting and usage are always on it, of every engine that one of them names."""
        series = _series.page(page)
        usage = series.either(_USAGE, _USAGE_OLD)
        series.check_alike(_RUNNING, _WAITING, usage)
        return EngineReading(
            running=series.count(_RUNNING),
            waiting=series.count(_WAITING),
            kv_usage=series.share(usage),
            kv_tokens_max=_kv_tokens_max(series),
            steps_total=series.mean_if_there(_STEPS),
            tokens_total=_tokens_total(series),
            preemptions_total=series.total_if_there(_PREEMPTIONS),
            rejections_total=series.total_if_there(_REJECTIONS),
            ready=all(sample.value > 0 for sample in series.samples_if_there(_SLEEP, sleep_state="awake")),
        )


def _kv_tokens_max(series: Page) -> int | None:
    """None unless every engine says how large its cache is."""
    caches = series.samples_if_there(_CACHE)
    total = 0
    for cache in caches:
        tokens = _cache_tokens(cache)
        if tokens is None:
            return None
        total += tokens
    return total if len(caches) == len(series.samples(_RUNNING)) else None


def _cache_tokens(cache: Sample) -> int | None:
    said = whole_of(cache.labels.get("kv_cache_size_tokens"))
    if said:
        return said
    return tokens_of(whole_of(cache.labels.get("num_gpu_blocks")), whole_of(cache.labels.get("block_size")))


def _tokens_total(series: Page) -> float | None:
    said = series.total_if_there(_STEP_TOKENS)
    if said is not None:
        return said
    prompt, generated = series.total_if_there(_PROMPT), series.total_if_there(_GENERATED)
    return None if prompt is None or generated is None else prompt + generated
