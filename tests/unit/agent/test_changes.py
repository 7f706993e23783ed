"""What the log is told: every change of a state, and no flood of them."""

import logging

import pytest

from tidegate.agent.changes import EVERY_S, Changes
from tidegate.agent.records import Gpu, GpuState, NodeState, Sample

WELL = Sample(state=NodeState.OK, taken_s=0.0, gpus=(Gpu(index=0), Gpu(index=1, uuid="GPU-b")))
LOST = Sample(state=NodeState.OK, taken_s=0.0, gpus=(Gpu(index=0), Gpu(index=1, uuid="GPU-b", state=GpuState.GPU_LOST)))


@pytest.fixture
def changes(caplog: pytest.LogCaptureFixture) -> Changes:
    caplog.set_level(logging.INFO)
    return Changes(logging.getLogger("agent"))


def test_changes_are_told_once_and_not_too_often(changes: Changes, caplog: pytest.LogCaptureFixture) -> None:
    """The first at once, then what is different ten seconds later; what flaps in between tells nothing."""
    changes.tell(WELL, 0.0)
    assert [record.levelname for record in caplog.records] == ["INFO"] * 3
    caplog.clear()
    for at in range(1, 99):
        changes.tell(LOST if at % 2 else WELL, at / 10)
    assert not caplog.records
    changes.tell(LOST, EVERY_S)
    changes.tell(LOST, EVERY_S * 3)
    (record,) = caplog.records
    assert (record.levelname, record.message) == (
        "WARNING",
        "GPU 1 GPU-b is gpu_lost: it fell off the bus or is not there any more",
    )


def test_what_goes_and_comes_back(changes: Changes, caplog: pytest.LogCaptureFixture) -> None:
    """A GPU that is gone from the count is told; with the driver gone, that one line is enough."""
    changes.tell(WELL, 0.0)
    caplog.clear()
    changes.tell(Sample(state=NodeState.OK, taken_s=0.0, gpus=(Gpu(index=0),)), EVERY_S)
    changes.tell(Sample(state=NodeState.DRIVER_MISSING, taken_s=0.0, detail="Driver Not Loaded"), EVERY_S * 2)
    changes.tell(WELL, EVERY_S * 3)
    assert [record.message for record in caplog.records] == [
        "GPU 1 is not there any more",
        "node is driver_missing: the kernel module is not loaded (Driver Not Loaded)",
        "node is ok: the GPUs are read",
        "GPU 0 is ok: it works and tells everything",
        "GPU 1 GPU-b is ok: it works and tells everything",
    ]
