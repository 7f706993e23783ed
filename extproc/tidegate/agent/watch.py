"""Looks at the GPUs of a node again and again: attaches to the driver, loses it, and comes back.

    attach   at the first look; where that fails after 1 s, then 2, 4 .. 30 s
    scan     every 5 s: which GPUs and slices there are, their names, their ECC errors
    read     every look: memory and utilisation of each
    anew     detach and attach every 60 s while a GPU is lost or fails: only so does the library see that it is back

What fails for one GPU stays with it. What fails for the driver takes all GPUs away until it answers again, for figures
from before are not figures.
"""

from collections.abc import Callable
from typing import Any, Protocol

from msgspec import structs

from tidegate.agent.faults import DriverFault, GpuFault
from tidegate.agent.nvml import Found
from tidegate.agent.records import Gpu, GpuState, Memory, NodeState, Sample, Utilisation
from tidegate.agent.window import Window

RETRY_S_MIN, RETRY_S_MAX = 1.0, 30.0
SCAN_S = 5.0
ANEW_S = 60.0
_GRAVITY = {state: rank for rank, state in enumerate(GpuState)}
_GONE = frozenset({GpuState.GPU_LOST, GpuState.RESET_REQUIRED})
_TROUBLED = _GONE | {GpuState.FAILED}


class Library(Protocol):
    """What is asked of NVML; see nvml.Nvml."""

    def open(self) -> str: ...

    def close(self) -> None: ...

    def scan(self) -> tuple[Found, ...]: ...

    def memory(self, handle: Any) -> Memory: ...

    def utilisation_percent(self, handle: Any) -> int: ...


class Watch:
    """One node's GPUs over time. Calls may hang as the driver does.

    Args:
        window: makes the window of one GPU's utilisation.
    """

    def __init__(self, library: Library, window: Callable[[], Window]) -> None:
        self._library = library
        self._new_window = window
        self._windows: dict[str, Window] = {}
        self._found: tuple[Found, ...] = ()
        self._driver: str | None = None  # None: not attached
        self._attached_s = self._scanned_s = self._retry_at_s = float("-inf")
        self._retry_s = RETRY_S_MIN
        self._last = Sample(state=NodeState.STARTING, taken_s=0.0)

    def look(self, now_s: float) -> Sample:
        """Look at every GPU; the last look again while waiting to attach."""
        if now_s < self._retry_at_s:
            return self._last
        try:
            self._prepare(now_s)
            gpus = tuple(self._gpu(found, now_s) for found in self._found)
        except DriverFault as fault:
            self._detach()
            self._retry_at_s = now_s + self._retry_s
            self._retry_s = min(2 * self._retry_s, RETRY_S_MAX)
            self._last = Sample(state=fault.state, detail=str(fault), taken_s=now_s)
        else:
            self._retry_s = RETRY_S_MIN
            self._last = Sample(state=NodeState.OK, taken_s=now_s, driver=self._driver or "", gpus=gpus)
        return self._last

    def close(self) -> None:
        """Detach from the driver."""
        self._detach()

    def _prepare(self, now_s: float) -> None:
        troubled = any(gpu.state in _TROUBLED for gpu in self._last.gpus)
        if troubled and now_s - self._attached_s >= ANEW_S:
            self._detach()
        if self._driver is None:
            self._driver = self._library.open()
            self._attached_s, self._scanned_s = now_s, float("-inf")
        if now_s - self._scanned_s >= SCAN_S:
            self._found = self._named(self._library.scan())
            self._scanned_s = now_s
            labels = {found.gpu.label for found in self._found}
            self._windows = {label: window for label, window in self._windows.items() if label in labels}

    def _named(self, scanned: tuple[Found, ...]) -> tuple[Found, ...]:
        """With the name of each that was there before and cannot tell it any more; labels move where a GPU goes."""
        if [found.gpu.label for found in scanned] != [found.gpu.label for found in self._found]:
            return scanned
        pairs = zip(scanned, self._found, strict=True)
        return tuple(new if new.gpu.uuid else _named_like(new, old.gpu) for new, old in pairs)

    def _detach(self) -> None:
        if self._driver is not None:
            self._driver = None
            self._library.close()

    def _gpu(self, found: Found, now_s: float) -> Gpu:
        gpu = found.gpu
        if found.handle is None:
            return gpu
        memory, fault = self._memory(found)
        gpu = _graver(gpu, fault)
        utilisation = None
        if gpu.state not in _TROUBLED:
            utilisation, fault = self._utilisation(found, now_s)
            gpu = _graver(gpu, fault)
        if gpu.state in _GONE:
            return gpu
        return structs.replace(gpu, memory=memory, utilisation=utilisation)

    def _memory(self, found: Found) -> tuple[Memory | None, GpuFault | None]:
        try:
            return self._library.memory(found.handle), None
        except GpuFault as fault:
            return None, fault

    def _utilisation(self, found: Found, now_s: float) -> tuple[Utilisation | None, GpuFault | None]:
        try:
            percent = self._library.utilisation_percent(found.handle)
        except GpuFault as fault:
            return None, fault
        label = found.gpu.label
        window = self._windows.get(label)
        if window is None:
            window = self._windows[label] = self._new_window()
        window.add(percent, now_s)
        return window.utilisation(), None


def _graver(gpu: Gpu, fault: GpuFault | None) -> Gpu:
    """The GPU in the graver of its state and the fault's."""
    if fault is None or _GRAVITY[gpu.state] <= _GRAVITY[fault.state]:
        return gpu
    return structs.replace(gpu, state=fault.state, detail=str(fault))


def _named_like(found: Found, before: Gpu) -> Found:
    return structs.replace(found, gpu=structs.replace(found.gpu, uuid=before.uuid, name=before.name))
