"""The pages of tests/data/signals: captured ones, and those written after documentation, which say so on top.

`trtllm-iterations.json` is written after TensorRT-LLM's documentation too: JSON has no place to say it.
"""

from dataclasses import dataclass
from pathlib import Path

from tidegate.admission.reading import EngineReading
from tidegate.signals.base import PageReader
from tidegate.signals.registry import reader_of

FOLDER = Path(__file__).parents[2] / "data" / "signals"
MAPPING = (
    'running=my_requests{state="running"};waiting=my_requests{state="queued"};kv-usage=my_cache_percent*0.01;'
    "kv-tokens-max=my_blocks*16;steps-total=my_steps_total;tokens-total=my_tokens_total;"
    "memory-free-mib=my_gpu_free_bytes*9.5367431640625e-7;ready=my_accepting"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """A page, who reads it, what it says, and the series without which it is half a page."""

    file: str
    kind: str
    reading: EngineReading
    required: tuple[str, ...]
    mapping: str | None = None

    @property
    def page(self) -> bytes:
        return (FOLDER / self.file).read_bytes()

    @property
    def reader(self) -> PageReader:
        return reader_of(self.kind, self.mapping)


_VLLM = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
_VLLM_V0 = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:gpu_cache_usage_perc")
_SGLANG = ("sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:token_usage")

GOLDEN = (
    Golden(
        file="vllm-loaded.txt",
        kind="vllm",
        required=_VLLM,
        reading=EngineReading(
            running=4,
            waiting=4,
            kv_usage=0.0007324665812122877,
            kv_tokens_max=2_097_152,
            steps_total=516,
            tokens_total=3181,
            preemptions_total=0,
            rejections_total=0,
        ),
    ),
    Golden(
        file="vllm-full-cache.txt",
        kind="vllm",
        required=_VLLM,
        reading=EngineReading(
            running=3,
            waiting=9,
            kv_usage=0.8461538461538461,
            kv_tokens_max=1280,
            steps_total=175,
            tokens_total=1835,
            preemptions_total=0,
            rejections_total=0,
        ),
    ),
    Golden(
        file="vllm-bounded-queue.txt",
        kind="vllm",
        required=_VLLM,
        reading=EngineReading(
            running=2,
            waiting=2,
            kv_usage=0.00024415552707079957,
            kv_tokens_max=2_097_152,
            steps_total=7614,
            tokens_total=16_209,
            preemptions_total=0,
            rejections_total=20,
        ),
    ),
    Golden(
        file="vllm-v0.txt",
        kind="vllm",
        required=_VLLM_V0,
        reading=EngineReading(
            running=12, waiting=3, kv_usage=0.34, kv_tokens_max=441_536, tokens_total=9000, preemptions_total=2
        ),
    ),
    Golden(
        file="vllm-data-parallel.txt",
        kind="vllm",
        required=_VLLM,
        reading=EngineReading(
            running=20,
            waiting=3,
            kv_usage=0.375,
            kv_tokens_max=304_000,
            steps_total=350,
            tokens_total=8000,
            preemptions_total=3,
            ready=False,
        ),
    ),
    Golden(
        file="sglang.txt",
        kind="sglang",
        required=_SGLANG,
        reading=EngineReading(running=162, waiting=2826, kv_usage=0.28),
    ),
    Golden(
        file="sglang-ranks-and-priorities.txt",
        kind="sglang",
        required=_SGLANG,
        reading=EngineReading(running=16, waiting=5, kv_usage=0.4, kv_tokens_max=800_000, preemptions_total=7),
    ),
    Golden(
        file="llamacpp-loaded.txt",
        kind="llamacpp",
        required=("llamacpp:requests_processing", "llamacpp:requests_deferred"),
        reading=EngineReading(running=2, waiting=5, steps_total=1465),
    ),
    Golden(
        file="triton-idle.txt",
        kind="triton",
        required=("nv_inference_pending_request_count",),
        reading=EngineReading(waiting=0, rejections_total=1),
    ),
    Golden(
        file="triton-tensorrtllm.txt",
        kind="triton",
        required=(
            "nv_inference_pending_request_count",
            "nv_trt_llm_request_metrics",
            "nv_trt_llm_kv_cache_block_metrics",
        ),
        reading=EngineReading(
            running=239,
            waiting=11,
            slots=256,
            kv_usage=0.75,
            kv_tokens_max=313_344,
            steps_total=90,
            rejections_total=3,
            memory_free_mib=0,
        ),
    ),
    Golden(
        file="trtllm-prometheus.txt",
        kind="trtllm",
        required=("trtllm_num_requests_running", "trtllm_num_requests_waiting"),
        reading=EngineReading(running=5, waiting=3, slots=64, kv_usage=0.6, kv_tokens_max=171_456),
    ),
    Golden(
        file="trtllm-iterations.json",
        kind="trtllm",
        required=(),
        reading=EngineReading(running=6, waiting=2, slots=64, kv_usage=0.5, kv_tokens_max=171_456, steps_total=154),
    ),
    Golden(
        file="ray-serve-idle.txt",
        kind="ray-serve",
        required=("ray_serve_num_ongoing_requests_at_replicas", "ray_serve_deployment_queued_queries"),
        reading=EngineReading(running=0, waiting=0),
    ),
    Golden(
        file="tgi.txt",
        kind="tgi",
        required=("tgi_batch_current_size", "tgi_queue_size"),
        reading=EngineReading(running=5, waiting=2, steps_total=48_211, rejections_total=7),
    ),
    Golden(
        file="kserve-queue-proxy.txt",
        kind="kserve",
        required=("queue_average_concurrent_requests",),
        reading=EngineReading(running=4),
    ),
    Golden(
        file="kserve-otel.txt",
        kind="kserve",
        required=("kn_serving_queue_depth",),
        reading=EngineReading(running=7),
    ),
    Golden(
        file="custom.txt",
        kind="prometheus",
        mapping=MAPPING,
        required=("my_requests", "my_cache_percent", "my_blocks", "my_gpu_free_bytes", "my_accepting"),
        reading=EngineReading(
            running=5,
            waiting=4,
            kv_usage=0.4,
            kv_tokens_max=16_000,
            steps_total=12_345,
            memory_free_mib=1024,
            ready=False,
        ),
    ),
)
"""Every page; the dropped `_total` series of `custom.txt` is one a counter may lack."""
EXPOSITIONS = tuple(golden for golden in GOLDEN if golden.required)
"""Those in Prometheus's text format."""


def without(page: bytes, series: str) -> bytes:
    """The page without any line of the series."""
    ends = tuple(series.encode() + end for end in (b"{", b" "))
    return b"".join(line for line in page.splitlines(keepends=True) if not line.startswith(ends))
