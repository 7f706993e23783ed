"""The pages: what Prometheus and the service are told of one look."""

import json
from typing import Any

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tidegate.agent.json_page import json_page
from tidegate.agent.metrics_page import GpuCollector, registry_of
from tidegate.agent.records import (
    BYTES_PER_MIB,
    GPU_HELP,
    NODE_HELP,
    STALE_S,
    Gpu,
    GpuState,
    Memory,
    NodeState,
    Sample,
    Utilisation,
)
from tidegate.agent.sampler import Seen
from tidegate.agent.selection import UnknownGpu

WHOLE = Gpu(
    index=0,
    uuid="GPU-a",
    name='NVIDIA "X"\n',
    memory=Memory(
        total_bytes=80_000 * BYTES_PER_MIB, free_bytes=30_000 * BYTES_PER_MIB, used_bytes=49_000 * BYTES_PER_MIB
    ),
    utilisation=Utilisation(last=0.1, p50=0.2, p95=0.9, samples=300),
    ecc_uncorrected=0,
)
SLICE = Gpu(
    index=1,
    slice_index=2,
    uuid="MIG-b",
    state=GpuState.UTILISATION_NOT_SUPPORTED,
    memory=Memory(
        total_bytes=20_000 * BYTES_PER_MIB, free_bytes=10_000 * BYTES_PER_MIB, used_bytes=10_000 * BYTES_PER_MIB
    ),
)
LOST = Gpu(index=2, uuid="GPU-c", state=GpuState.GPU_LOST, detail="GPU is lost")


def seen(*gpus: Gpu, state: NodeState = NodeState.OK, age_s: float = 0.05, stuck: bool = False) -> Seen:
    sample = Sample(state=state, taken_s=0.0, driver="580.82" if gpus else "", gpus=gpus)
    return Seen(sample=sample, state=NodeState.STUCK if stuck else state, age_s=age_s)


def page(of: Seen, *names: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json_page(of, names, interval_s=0.1, window_s=30.0))
    return found


def metrics(of: Seen) -> dict[tuple[str, ...], float]:
    """Ours of the page as Prometheus reads it: name and label values to value; labels are in alphabetic order."""
    text = generate_latest(registry_of(GpuCollector(lambda: of, lambda: 7))).decode()
    return {
        (
            sample.name.removeprefix("tidegate_gpu_"),
            *(label for _, label in sorted(sample.labels.items())),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("tidegate_gpu_")
    }


def test_every_state_is_explained() -> None:
    """Whoever reads a state at night is told what it means."""
    assert set(NODE_HELP) == set(NodeState)
    assert set(GPU_HELP) == set(GpuState)


def test_json_page() -> None:
    """Memory in MiB, utilisation as shares, null for what is not told, headroom over what tells its memory."""
    found = page(seen(WHOLE, SLICE, LOST))
    assert (found["state"], found["age_s"], found["interval_s"], found["window_s"]) == ("ok", 0.05, 0.1, 30.0)
    assert found["headroom"] == {"largest_mib": 30_000, "least_mib": 10_000, "sum_mib": 40_000, "fragmentation": 0.25}
    whole, part, lost = found["gpus"]
    assert whole == {
        "gpu": "0",
        "uuid": "GPU-a",
        "name": 'NVIDIA "X"\n',
        "state": "ok",
        "detail": "",
        "memory_total_mib": 80_000,
        "memory_free_mib": 30_000,
        "memory_used_mib": 49_000,
        "utilisation": {"last": 0.1, "p50": 0.2, "p95": 0.9, "samples": 300},
        "ecc_uncorrected": 0,
    }
    assert (part["gpu"], part["utilisation"], part["ecc_uncorrected"]) == ("1:2", None, None)
    assert (lost["state"], lost["detail"], lost["memory_free_mib"]) == ("gpu_lost", "GPU is lost", None)


def test_json_page_of_some_gpus() -> None:
    """Headroom is that of the GPUs asked for; one that is not there is an error only where GPUs can be seen."""
    found = page(seen(WHOLE, SLICE), "GPU-a")
    assert [gpu["gpu"] for gpu in found["gpus"]] == ["0"]
    assert found["headroom"]["least_mib"] == 30_000
    with pytest.raises(UnknownGpu):
        page(seen(WHOLE), "1")
    found = page(seen(state=NodeState.DRIVER_MISSING), "1")
    assert (found["state"], found["gpus"], found["headroom"]) == ("driver_missing", [], None)
    assert found["meaning"] == "the kernel module is not loaded"


def test_metrics_page() -> None:
    """One series a figure, states as 0 and 1, and nothing invented for what is not told."""
    found = metrics(seen(WHOLE, SLICE, LOST))
    assert found["memory_free_bytes", "0", "GPU-a"] == 30_000 * BYTES_PER_MIB
    assert found["memory_used_bytes", "1:2", "MIG-b"] == 10_000 * BYTES_PER_MIB
    assert found["memory_total_bytes", "0", "GPU-a"] == 80_000 * BYTES_PER_MIB
    assert ("memory_free_bytes", "2", "GPU-c") not in found
    assert found["utilisation_ratio", "0", "0.5", "GPU-a"] == 0.2
    assert found["utilisation_ratio", "0", "0.95", "GPU-a"] == 0.9
    assert ("utilisation_ratio", "1:2", "0.5", "MIG-b") not in found
    assert (found["state", "2", "gpu_lost", "GPU-c"], found["state", "2", "ok", "GPU-c"]) == (1, 0)
    assert found["ecc_uncorrected_total", "0", "GPU-a"] == 0
    assert found["info", "0", 'NVIDIA "X"\n', "GPU-a"] == 1
    assert found[("headroom_largest_bytes",)] == 30_000 * BYTES_PER_MIB
    assert found[("headroom_least_bytes",)] == 10_000 * BYTES_PER_MIB
    assert found[("headroom_sum_bytes",)] == 40_000 * BYTES_PER_MIB
    assert (found["agent_state", "ok"], found["agent_state", "stuck"]) == (1, 0)
    assert (found[("agent_age_seconds",)], found[("agent_looks_total",)]) == (0.05, 7)


@pytest.mark.parametrize(
    "of",
    [
        seen(WHOLE, age_s=STALE_S + 1, stuck=True),
        seen(WHOLE, age_s=STALE_S + 1),
        seen(state=NodeState.DRIVER_MISSING),
        seen(state=NodeState.STARTING),
    ],
)
def test_old_figures_are_left_out_of_metrics(of: Seen) -> None:
    """Prometheus would take them for those of now; state and age stay."""
    found = metrics(of)
    assert {name for name, *_ in found} == {"agent_state", "agent_age_seconds", "agent_looks_total", "agent_build_info"}
    assert found["agent_state", of.state] == 1
    assert sum(value for (name, *_), value in found.items() if name == "agent_state") == 1
