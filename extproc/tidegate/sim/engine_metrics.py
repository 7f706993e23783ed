"""The simulated engine's metrics page: vLLM's names and labels, from the model's own counters at the scrape."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidegate.sim.engine_driver import Generation
from tidegate.sim.engine_model import EngineModel
from tidegate.sim.engine_records import StepEvent
from tidegate.sim.lengths import FinishReason
from tidegate.sim.profiles import BLOCK_TOKENS

ENGINE_LABELS = ("engine", "model_name")
_LATENCY_S = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
    20,
    40,
    80,
    160,
    640,
)
_E2E_S = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920)
_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000)
_STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


class EngineMetrics:
    """One engine's page; its own registry, so that several engines live in one process."""

    def __init__(self, model: EngineModel, *, model_name: str) -> None:
        self.registry = CollectorRegistry()
        self._labels = ("0", model_name)
        self._reasons = dict.fromkeys((*FinishReason, "abort"), 0)
        self.registry.register(_ModelCollector(model, self._labels, self._reasons))
        self._iteration_tokens = self._histogram("iteration_tokens_total", "Tokens per engine step.", _STEP_TOKENS)
        self._ttft_s = self._histogram("time_to_first_token_seconds", "Time to first token.", _LATENCY_S)
        self._e2e_s = self._histogram("e2e_request_latency_seconds", "Time to last token.", _E2E_S)
        self._generated = self._histogram("request_generation_tokens", "Tokens generated of a request.", _TOKENS)

    def page(self) -> bytes:
        """The page in Prometheus's text format."""
        return generate_latest(self.registry)

    def on_step(self, event: StepEvent) -> None:
        """Count a step; as in vLLM, one that gave no token, only a part of a prompt, is none."""
        if event.tokens:
            self._iteration_tokens.observe(event.tokens + event.prompt_tokens)

    def on_first_token(self, ttft_s: float) -> None:
        """Count the first token of a request."""
        self._ttft_s.observe(ttft_s)

    def on_end(self, generation: Generation, now_s: float) -> None:
        """Count the choices of a request that ended, finished or not."""
        for choice in generation.choices:
            self._reasons[choice.length.finish_reason if choice.finished else "abort"] += 1
            if choice.finished:
                self._e2e_s.observe(now_s - generation.submitted_s)
                self._generated.observe(choice.length.tokens)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        histogram = Histogram(f"vllm:{name}", text, ENGINE_LABELS, buckets=buckets, registry=self.registry)
        return histogram.labels(*self._labels)


class _ModelCollector(Collector):
    def __init__(self, model: EngineModel, labels: tuple[str, str], reasons: dict[str, int]) -> None:
        self._model = model
        self._labels = labels
        self._reasons = reasons

    def collect(self) -> Iterator[Metric]:
        model, counters = self._model, self._model.counters
        yield self._gauge("num_requests_running", "Requests in model execution batches.", model.running)
        yield self._gauge("num_requests_waiting", "Requests waiting to be processed.", model.waiting)
        yield self._gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", model.kv_usage)
        yield self._counter("vllm:num_preemptions", "Preemptions by the engine.", counters.preemptions)
        yield self._counter("vllm:prompt_tokens", "Prefill tokens processed.", counters.prompt_tokens)
        yield self._counter("vllm:generation_tokens", "Generation tokens processed.", counters.completion_tokens)
        yield self._counter("vllm:prefix_cache_queries", "Prefix cache queries, tokens.", counters.prompt_tokens)
        yield self._counter("vllm:prefix_cache_hits", "Prefix cache hits, tokens: none is modelled.", 0)
        wasted = "Tokens generated for clients that had left."
        yield self._counter("tidegate_sim_wasted_tokens", wasted, counters.wasted_tokens)
        wasted = "Prompt tokens computed in vain: lost to a preemption or to a client that left."
        yield self._counter("tidegate_sim_wasted_prefill_tokens", wasted, counters.wasted_prefill_tokens)
        yield self._cache_config()
        yield self._request_success()
        yield self._rejections()

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"vllm:{name}", text, labels=ENGINE_LABELS)
        family.add_metric(self._labels, value)
        return family

    def _counter(self, name: str, text: str, value: int) -> Metric:
        family = CounterMetricFamily(name, text, labels=ENGINE_LABELS)
        family.add_metric(self._labels, value)
        return family

    def _cache_config(self) -> Metric:
        blocks = self._model.blocks
        config = {
            "block_size": str(BLOCK_TOKENS),
            "engine": self._labels[0],
            "kv_cache_size_tokens": str(blocks * BLOCK_TOKENS),
            "num_gpu_blocks": str(blocks),
        }
        family = GaugeMetricFamily("vllm:cache_config_info", "Information of the cache.", labels=tuple(config))
        family.add_metric(tuple(config.values()), 1)
        return family

    def _request_success(self) -> Metric:
        labels = ("engine", "finished_reason", "model_name")
        family = CounterMetricFamily("vllm:request_success", "Processed requests.", labels=labels)
        for reason, count in self._reasons.items():
            family.add_metric((self._labels[0], reason, self._labels[1]), count)
        return family

    def _rejections(self) -> Metric:
        text = "Requests rejected by a queue limit, by reason."
        family = CounterMetricFamily("vllm:admission_rejections", text, labels=("model_name", "reason"))
        family.add_metric((self._labels[1], "max_num_queued_reqs"), self._model.counters.rejected)
        return family
