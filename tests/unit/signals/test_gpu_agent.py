"""The reader of the GPU agent's page."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.admission.reading import EngineReading
from tidegate.agent.records import STALE_S
from tidegate.errors import HalfPage
from tidegate.signals.base import PageReader
from tidegate.signals.gpu_agent import AGE_S_MAX, GpuAgentReader

READER: PageReader = GpuAgentReader()


def page(*free_mib: float | None, **more: Any) -> bytes:
    gpus = [
        {
            "gpu": str(index),
            "uuid": f"GPU-{index}",
            "state": "gpu_lost" if free is None else "ok",
            "memory_free_mib": free,
        }
        for index, free in enumerate(free_mib)
    ]
    return json.dumps({"state": "ok", "age_s": 0.05, "headroom": None, "gpus": gpus, **more}).encode()


@given(free_mib=st.lists(st.floats(0.0, 1e6), min_size=1, max_size=16))
def test_the_gpu_with_the_least_counts(free_mib: list[float]) -> None:
    """An engine takes as much on each of its GPUs; nothing else is in the reading."""
    assert READER.read(page(*free_mib)) == EngineReading(memory_free_mib=min(free_mib))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (page(5.0, age_s=5.1), "age_s is 5.1: figures older than 5 s"),
        (page(5.0, age_s=-1.0), "age_s is -1"),
        (page(5.0, state="stuck"), "the GPU node is 'stuck'"),
        (page(state="driver_missing", age_s=20.0), "'driver_missing'"),
        (page(5.0, None), "GPU '1' does not tell its free memory; it is 'gpu_lost'"),
        (page(5.0, -1.0), "GPU '1' does not tell"),
        (page(), "gpus is empty"),
        (page(5.0, age_s=None), "age_s"),
        (page(5.0, gpus=[{"gpu": "0"}]), "state"),
        (b'{"state": "ok", "age_s": 1, "gpus": [{"gpu": "0", "state": "ok", "memory_free_mib": 1e999}]}', "no page of"),
        (b"", "no page of tidegate agent"),
        (b"# HELP tidegate_gpu_info\n", "no page of tidegate agent"),
        (b"\xff", "no page of tidegate agent"),
        (b'{"x":' + b"[" * 100_000, "no page of tidegate agent"),
        (page(5.0, state="x" * 10_000), "the GPU node is 'xxx"),
    ],
)
def test_half_a_page_names_what_is_wrong(text: bytes, says: str) -> None:
    """Old, incomplete or foreign pages give no reading, and a message of bounded length."""
    with pytest.raises(HalfPage) as raised:
        READER.read(text)
    assert says in str(raised.value)
    assert len(str(raised.value)) < 300


@given(text=st.binary(max_size=300) | st.binary(max_size=80).map(lambda tail: page(5.0)[:-3] + tail))
def test_any_bytes_are_a_reading_or_half_a_page(text: bytes) -> None:
    """Nothing else can come of what somebody answers on that port."""
    try:
        READER.read(text)
    except HalfPage:
        return


def test_the_agent_and_its_reader_agree_on_what_is_old() -> None:
    """The agent calls a node stuck when the reader stops to believe it."""
    assert AGE_S_MAX == STALE_S
    assert (READER.kind, READER.path) == ("gpu-agent", "/gpus.json")
