"""NVIDIA's management library: the only file that knows the bindings, and that every one of its calls may fail.

What concerns the whole driver is raised as `DriverFault`, what concerns one GPU as `GpuFault`; a scan never fails for
one GPU, for its neighbours go on. A call may also hang, for seconds or for good, while a GPU is being lost: nothing
here may be called where something waits for it.
"""

import importlib
from typing import Any

from msgspec import Struct, structs

from tidegate.agent.faults import NOT_TOLD, OLDER_FORM, Code, DriverFault, GpuFault, driver_fault, gpu_fault
from tidegate.agent.records import Gpu, GpuState, Memory, NodeState
from tidegate.errors import OperatorError

GPUS_MAX = 64
SLICES_MAX = 16  # MIG makes seven at most
_ECC_VOLATILE, _ECC_UNCORRECTED, _MIG_ENABLED = 0, 1, 1


class Found(Struct, frozen=True, kw_only=True):
    """One GPU or slice as a scan found it: what seldom changes. `handle` is None where there is nothing to read."""

    gpu: Gpu
    handle: Any = None


class Nvml:
    """The library, behind the bindings of nvidia-ml-py.

    Raises:
        OperatorError: the bindings are not installed.
    """

    def __init__(self) -> None:
        try:
            self._nvml: Any = importlib.import_module("pynvml")  # an optional extra, and without type information
        except ImportError as error:
            raise OperatorError("`tidegate agent` needs nvidia-ml-py: pip install 'tidegate[gpu]'") from error
        self._memory_v2 = True

    def open(self) -> str:
        """Load the library and attach to the driver; its version, empty where it does not say. DriverFault."""
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            raise driver_fault(error) from None
        self._memory_v2 = True
        return self._text("nvmlSystemGetDriverVersion")

    def close(self) -> None:
        """Detach; nothing where that fails, for then there is nothing to detach from."""
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError:
            return

    def scan(self) -> tuple[Found, ...]:
        """Every GPU, those that MIG has cut up as their slices; DriverFault, also where there is none."""
        try:
            count = int(self._nvml.nvmlDeviceGetCount())
        except self._nvml.NVMLError as error:
            raise driver_fault(error) from None
        if not count:
            raise DriverFault(NodeState.NO_GPU, "")
        return tuple(found for index in range(min(count, GPUS_MAX)) for found in self._gpu(index))

    def memory(self, handle: Any) -> Memory:
        """Memory of a GPU or slice; GpuFault, DriverFault."""
        try:
            told = self._memory_told(handle)
        except self._nvml.NVMLError as error:
            raise gpu_fault(error, not_told=GpuState.MEMORY_NOT_SUPPORTED) from None
        memory = Memory(total_bytes=int(told.total), free_bytes=int(told.free), used_bytes=int(told.used))
        if not memory.total_bytes or max(memory.free_bytes, memory.used_bytes) > memory.total_bytes:
            raise GpuFault(GpuState.FAILED, f"memory that cannot be: {memory}")
        return memory

    def utilisation_percent(self, handle: Any) -> int:
        """Share of the last sixth of a second to second with a kernel running, in per cent; GpuFault, DriverFault."""
        try:
            percent = int(self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        except self._nvml.NVMLError as error:
            raise gpu_fault(error, not_told=GpuState.UTILISATION_NOT_SUPPORTED) from None
        if percent > 100:
            raise GpuFault(GpuState.FAILED, f"utilisation that cannot be: {percent} %")
        return percent

    def _memory_told(self, handle: Any) -> Any:
        """The newer form tells what the driver keeps for itself apart; drivers before 510 have only the older one."""
        if self._memory_v2:
            try:
                return self._nvml.nvmlDeviceGetMemoryInfo(handle, self._nvml.nvmlMemory_v2)
            except self._nvml.NVMLError as error:
                if error.value not in OLDER_FORM:
                    raise
        told = self._nvml.nvmlDeviceGetMemoryInfo(handle)
        self._memory_v2 = False  # only now: some GPUs have neither form, and their neighbours both
        return told

    def _gpu(self, index: int) -> tuple[Found, ...]:
        try:
            handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
            ecc = self._ecc_uncorrected(handle)
            if not self._is_cut_up(handle):
                return (self._found(index, None, handle, ecc),)
            slices = self._slices(index, handle, ecc)
        except self._nvml.NVMLError as error:
            fault = gpu_fault(error, not_told=GpuState.FAILED)
            if isinstance(fault, DriverFault):
                raise fault from None
            return (Found(gpu=Gpu(index=index, state=fault.state, detail=str(fault))),)
        if not slices:
            whole = self._found(index, None, handle, ecc).gpu
            return (Found(gpu=structs.replace(whole, state=GpuState.MIG_WITHOUT_SLICES)),)
        return slices

    def _slices(self, index: int, gpu: Any, ecc: int | None) -> tuple[Found, ...]:
        most = min(int(self._nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)), SLICES_MAX)
        found = []
        for slice_index in range(most):
            try:
                handle = self._nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, slice_index)
            except self._nvml.NVMLError as error:
                if error.value in {Code.NOT_FOUND, Code.INVALID_ARGUMENT}:  # no slice of this number
                    continue
                raise
            found.append(self._found(index, slice_index, handle, ecc))
        return tuple(found)

    def _found(self, index: int, slice_index: int | None, handle: Any, ecc: int | None) -> Found:
        gpu = Gpu(
            index=index,
            slice_index=slice_index,
            uuid=self._text("nvmlDeviceGetUUID", handle),
            name=self._text("nvmlDeviceGetName", handle),
            state=GpuState.ECC_UNCORRECTED if ecc else GpuState.OK,
            ecc_uncorrected=ecc,
        )
        return Found(gpu=gpu, handle=handle)

    def _is_cut_up(self, handle: Any) -> bool:
        try:
            current, _pending = self._nvml.nvmlDeviceGetMigMode(handle)
        except self._nvml.NVMLError as error:
            if error.value in NOT_TOLD:  # GPUs and drivers from before MIG
                return False
            raise
        return bool(current == _MIG_ENABLED)

    # What follows is not worth losing the figures for: where the GPU is gone, those say so themselves.

    def _ecc_uncorrected(self, handle: Any) -> int | None:
        try:
            return int(self._nvml.nvmlDeviceGetTotalEccErrors(handle, _ECC_UNCORRECTED, _ECC_VOLATILE))
        except self._nvml.NVMLError:
            return None

    def _text(self, call: str, *of: Any) -> str:
        try:
            return str(getattr(self._nvml, call)(*of))
        except (self._nvml.NVMLError, UnicodeDecodeError):
            return ""
