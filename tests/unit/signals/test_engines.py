"""What is particular to one kind of engine's page."""

import json

import pytest

from tests.unit.signals.pages import FOLDER
from tidegate.admission.reading import EngineReading
from tidegate.errors import HalfPage
from tidegate.signals.registry import reader_of
from tidegate.signals.trtllm import JSON_BYTES_MAX


def page_of(file: str, *changes: tuple[str, str]) -> bytes:
    """The page with some of its text replaced; each must be there."""
    text = (FOLDER / file).read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text.encode()


def read(kind: str, page: bytes) -> EngineReading:
    return reader_of(kind).read(page)


@pytest.mark.parametrize("series", ["num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"])
def test_vllm_does_not_add_up_half_of_its_engines(series: str) -> None:
    """A figure that only one of two engines gives is half a figure, and the message says whose is missing."""
    page = page_of("vllm-data-parallel.txt", (f'vllm:{series}{{engine="1"', 'vllm:x{engine="1"'))
    with pytest.raises(HalfPage, match=f"vllm:{series}.*engine='1'.* is missing"):
        read("vllm", page)


@pytest.mark.parametrize(
    "change", [('num_gpu_blocks="9000"', 'num_gpu_blocks="None"'), ('info{block_size="16",engine="1"', "x{")]
)
def test_vllm_does_not_say_a_capacity_that_one_engine_keeps_to_itself(change: tuple[str, str]) -> None:
    """The sum of some caches is not what all of them hold."""
    reading = read("vllm", page_of("vllm-data-parallel.txt", change))
    assert reading.kv_tokens_max is None
    assert reading.running == 20


def test_vllm_is_ready_where_all_its_engines_are_awake() -> None:
    """An engine that sleeps answers nobody; a page that does not speak of sleep is awake."""
    assert not read("vllm", page_of("vllm-data-parallel.txt")).ready
    awake = (
        'engine="1",model_name="llama",sleep_state="awake"} 0.0',
        'engine="1",model_name="llama",sleep_state="awake"} 1.0',
    )
    assert read("vllm", page_of("vllm-data-parallel.txt", awake)).ready
    assert read("vllm", page_of("vllm-v0.txt")).ready


def test_vllm_with_both_names_of_the_cache_gauge_is_read_by_the_new_one() -> None:
    """Versions in between give both; the older may be hidden at any time."""
    page = page_of("vllm-v0.txt") + b'vllm:kv_cache_usage_perc{model_name="llama"} 0.5\n'
    assert read("vllm", page).kv_usage == 0.5


def test_sglang_does_not_add_up_half_of_its_schedulers() -> None:
    """A data parallel rank whose queue is not there makes the queue unknown, not shorter."""
    page = page_of("sglang-ranks-and-priorities.txt", ('num_queue_reqs{dp_rank="1"', 'x{dp_rank="1"'))
    with pytest.raises(HalfPage, match="sglang:num_queue_reqs is missing of 1 of 2 schedulers"):
        read("sglang", page)


def test_sglang_counts_the_lowest_rank_of_each_scheduler() -> None:
    """Other ranks of the same scheduler report the same later, or not at all: they neither add nor replace."""
    labels = 'dp_rank="0",engine_type="unified",model_name="llama",moe_ep_rank="0",pp_rank="0",priority="",tp_rank="1"'
    series = f"num_running_reqs{{{labels}}}"
    page = page_of("sglang-ranks-and-priorities.txt", (f"{series} 10.0", f"{series} 99.0"))
    assert read("sglang", page).running == 16


def test_sglang_priorities_without_their_sum_say_nothing() -> None:
    """The sum's label is empty; single priorities need not be all there are."""
    page = b"".join(
        line
        for line in page_of("sglang-ranks-and-priorities.txt").splitlines(keepends=True)
        if b"num_running" not in line or b'priority=""' not in line
    )
    with pytest.raises(HalfPage, match="sglang:num_running_reqs has no sum over its priorities"):
        read("sglang", page)


def test_sglang_capacity_in_pages() -> None:
    """Versions without the gauge of tokens say pages and their size in labels."""
    page = page_of("sglang.txt") + b'sglang:cache_config_info{page_size="64",num_pages="11147"} 1.0\n'
    assert read("sglang", page).kv_tokens_max == 713_408


def test_triton_free_memory_is_that_of_the_fullest_gpu() -> None:
    """In MiB, and None where a GPU's figures are not both there or make no sense."""
    freed = ('used_bytes{gpu_uuid="GPU-a"} 85899345920', 'used_bytes{gpu_uuid="GPU-a"} 84351647744')
    assert read("triton", page_of("triton-tensorrtllm.txt", freed)).memory_free_mib == 1024.0
    for lacking in (
        ('used_bytes{gpu_uuid="GPU-a"} 85899345920', 'used_bytes{gpu_uuid="GPU-a"} 85899345921'),
        ('used_bytes{gpu_uuid="GPU-a"}', 'used_bytes{gpu_uuid="GPU-c"}'),
    ):
        assert read("triton", page_of("triton-tensorrtllm.txt", lacking)).memory_free_mib is None


@pytest.mark.parametrize(
    ("old", "missing"), [("scheduled", "scheduled"), ("waiting", "waiting"), ("fraction", "fraction")]
)
def test_triton_with_the_backend_must_say_what_it_works_on(old: str, missing: str) -> None:
    """Half of the backend's gauges are half a page; without any there is no backend."""
    with pytest.raises(HalfPage, match=f"nv_trt_llm_.*{missing}.* is missing"):
        read("triton", page_of("triton-tensorrtllm.txt", (f'_type="{old}"', '_type="x"')))


def test_triton_with_two_models_of_the_backend_adds_them_up() -> None:
    """Usage and steps are their mean; whose blocks are how large is not told apart."""
    page = page_of("triton-tensorrtllm.txt")
    other = b"".join(line.replace(b'"tensorrt_llm"', b'"draft"') for line in page.splitlines(True) if b"nv_trt" in line)
    both = read("triton", page + other.replace(b" 0.75\n", b" 0.25\n").replace(b" 90\n", b" 10\n"))
    assert (both.running, both.waiting, both.slots) == (478, 21, 512)
    assert (both.kv_usage, both.steps_total, both.kv_tokens_max) == (0.5, 50.0, None)


def test_kserve_rounds_a_mean_up() -> None:
    """A quarter of a request in the last second was a request."""
    assert read("kserve", b"queue_average_concurrent_requests 0.01\n").running == 1
    assert read("kserve", b"queue_average_concurrent_requests 0\n").running == 0
    assert read("kserve", b"revision_queue_depth 3\n").running == 3
    with pytest.raises(HalfPage, match="revision_queue_depth is more than 1000000"):
        read("kserve", b"revision_queue_depth 1000001\n")


def iterations(*changes: dict[str, object]) -> bytes:
    whole = json.loads((FOLDER / "trtllm-iterations.json").read_text())[-1]
    return json.dumps([whole | change for change in changes]).encode()


@pytest.mark.parametrize(
    ("kind", "running", "waiting"),
    [
        ("trtllm", "trtllm_num_requests_running", "trtllm_num_requests_waiting"),
        ("ray-serve", "ray_serve_num_ongoing_requests_at_replicas", "ray_serve_deployment_queued_queries"),
    ],
)
def test_one_of_two_handles_without_its_queue_makes_half_a_page(kind: str, running: str, waiting: str) -> None:
    """The sum of some is not what all have in hand."""
    page = f'{running}{{a="1"}} 4\n{running}{{a="2"}} 5\n{waiting}{{a="1"}} 6\n'
    assert read(kind, f'{page}{waiting}{{a="2"}} 7\n'.encode()) == EngineReading(running=9, waiting=13)
    with pytest.raises(HalfPage, match=waiting + r"\{a='2'\} is missing"):
        read(kind, page.encode())


def test_trtllm_reads_the_last_iteration() -> None:
    """Those before it are over."""
    reading = read("trtllm", iterations({"numActiveRequests": 9}, {"numActiveRequests": 7, "iter": 155}))
    assert (reading.running, reading.steps_total) == (7, 155)


def test_trtllm_without_an_iteration_says_nothing() -> None:
    """An idle server has had none since the last look: that is a whole page, not half of one."""
    assert read("trtllm", b" []\n") == EngineReading()


def test_trtllm_without_a_cache_has_no_usage() -> None:
    """Models without attention have no blocks, older servers no queue on the page."""
    reading = read("trtllm", iterations({"kvCacheStats": None}))
    assert (reading.running, reading.kv_usage, reading.kv_tokens_max) == (6, None, None)
    assert read("trtllm", iterations({"kvCacheStats": {"maxNumBlocks": 0, "usedNumBlocks": 0}})).kv_usage is None
    assert read("trtllm", b'[{"numActiveRequests": 1}]') == EngineReading(running=1)


@pytest.mark.parametrize(
    "page",
    [
        iterations({"numActiveRequests": None}),
        iterations({"numActiveRequests": -1}),
        iterations({"numActiveRequests": 1.5}),
        iterations({"numActiveRequests": 10**30}),
        iterations({"numActiveRequests": "5"}),
        iterations({"kvCacheStats": [1]}),
        b'[{"iter": 5}]',
        b'[{"numActiveRequests": 1, "iter": 1e999}]',
        b'[{"numActiveRequests": 1}',
        b'[{"numActiveRequests": 1, "x": "\xff"}]x',
        b"[" * 100_000,
        b'[{"x":' * 100_000,
        b"[1, 2]",
        b"[{}" + b",{}" * 1_000_000 + b"]",
        b"[" + b" " * JSON_BYTES_MAX + b"]",
    ],
)
def test_trtllm_iterations_that_cannot_be_are_refused(page: bytes) -> None:
    """No exception of the JSON parser gets out, and a page of brackets does not grow."""
    with pytest.raises(HalfPage) as raised:
        read("trtllm", page)
    assert len(str(raised.value)) < 300
