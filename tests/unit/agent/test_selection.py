"""Which GPUs a page is asked for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.agent.records import Gpu
from tidegate.agent.selection import ASKED_MAX, BadSelection, UnknownGpu, asked, select

GPUS = (
    Gpu(index=0, uuid="GPU-aaaa"),
    Gpu(index=1, slice_index=0, uuid="MIG-bbbb"),
    Gpu(index=1, slice_index=2, uuid="MIG-cccc"),
    Gpu(index=10, uuid="GPU-dddd"),
)


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([], ["0", "1:0", "1:2", "10"]),
        (["0"], ["0"]),
        (["1"], ["1:0", "1:2"]),
        (["1:2"], ["1:2"]),
        (["10,0"], ["0", "10"]),
        (["10", "0", "0"], ["0", "10"]),
        (["MIG-bbbb, GPU-dddd"], ["1:0", "10"]),
    ],
)
def test_gpus_by_number_slice_and_uuid(values: list[str], labels: list[str]) -> None:
    """A number means the GPU or all of its slices; each is there once, in the node's order; no names mean all."""
    assert [gpu.label for gpu in select(GPUS, asked(values))] == labels


@pytest.mark.parametrize("name", ["2", "1:1", "0:0", "GPU-bbbb", "100"])
def test_a_gpu_that_is_not_here(name: str) -> None:
    """It is an error that says which there are, for a smaller selection would be another engine's memory."""
    with pytest.raises(UnknownGpu, match="1:2 MIG-cccc"):
        select(GPUS, asked(["0", name]))


@pytest.mark.parametrize(
    "value", ["", "0,", ",", "-1", "0-3", "gpu0", "1:", "1:2:3", "\uff11", "0\n1", "GPU-", "GPU-" + "a" * 93]
)
def test_what_is_no_name(value: str) -> None:
    """An empty value among them: a template without its variable must not mean all GPUs."""
    with pytest.raises(BadSelection, match="expected at most"):
        asked([value])


def test_no_more_names_than_gpus() -> None:
    """A longer list is refused as a whole."""
    assert len(asked(["0"] * ASKED_MAX)) == ASKED_MAX
    with pytest.raises(BadSelection):
        asked(["0," * ASKED_MAX + "0"])


@given(values=st.lists(st.text(max_size=200), max_size=80))
def test_any_text_is_a_selection_or_refused(values: list[str]) -> None:
    """Nothing else can come of what a caller writes."""
    try:
        select(GPUS, asked(values))
    except (BadSelection, UnknownGpu):
        return
