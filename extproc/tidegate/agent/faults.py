"""NVML's codes of failure, and whose failure each is: the whole driver's, or that of one GPU."""

from enum import IntEnum
from typing import Protocol

from tidegate.agent.records import GpuState, NodeState
from tidegate.errors import EngineError


class Code(IntEnum):
    """Codes of NVML that mean something here; their numbers are part of its binary interface."""

    UNINITIALISED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    DRIVER_NOT_LOADED = 9
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    DRIVER_MISMATCH = 18
    VERSION_MISMATCH = 25
    GPU_NOT_FOUND = 28


_NODE_STATES: dict[int, NodeState] = {
    Code.NO_PERMISSION: NodeState.NO_PERMISSION,
    Code.NOT_FOUND: NodeState.NO_GPU,
    Code.DRIVER_NOT_LOADED: NodeState.DRIVER_MISSING,
    Code.LIBRARY_NOT_FOUND: NodeState.LIBRARY_MISSING,
    Code.FUNCTION_NOT_FOUND: NodeState.LIBRARY_TOO_OLD,
    Code.DRIVER_MISMATCH: NodeState.DRIVER_MISMATCH,
}
_GPU_STATES: dict[int, GpuState] = {
    Code.NO_PERMISSION: GpuState.NO_PERMISSION,
    Code.GPU_IS_LOST: GpuState.GPU_LOST,
    Code.GPU_NOT_FOUND: GpuState.GPU_LOST,
    Code.RESET_REQUIRED: GpuState.RESET_REQUIRED,
}
_WHOLE_DRIVER = frozenset({Code.UNINITIALISED, Code.DRIVER_NOT_LOADED, Code.DRIVER_MISMATCH})
NOT_TOLD = frozenset({Code.NOT_SUPPORTED, Code.FUNCTION_NOT_FOUND})
OLDER_FORM = NOT_TOLD | {Code.INVALID_ARGUMENT, Code.VERSION_MISMATCH}
"""What a driver answers that does not know the newer form of a call."""


class NvmlError(Protocol):
    """An error of the bindings."""

    value: int


class DriverFault(EngineError):
    """The driver as a whole does not answer; `state` says in what way."""

    def __init__(self, state: NodeState, detail: str) -> None:
        self.state = state
        super().__init__(detail)


class GpuFault(EngineError):
    """One GPU or slice does not answer; `state` says in what way."""

    def __init__(self, state: GpuState, detail: str) -> None:
        self.state = state
        super().__init__(detail)


def driver_fault(error: NvmlError) -> DriverFault:
    """What a call that concerns the whole driver says by failing."""
    return DriverFault(_NODE_STATES.get(error.value, NodeState.FAILED), str(error))


def gpu_fault(error: NvmlError, *, not_told: GpuState) -> DriverFault | GpuFault:
    """What a call that concerns one GPU says by failing; `not_told` is its state where it has no such figure."""
    if error.value in _WHOLE_DRIVER:
        return driver_fault(error)
    if error.value in NOT_TOLD:
        return GpuFault(not_told, str(error))
    return GpuFault(_GPU_STATES.get(error.value, GpuState.FAILED), str(error))
