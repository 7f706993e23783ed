"""What one look at the GPUs of a node found: states that say what is wrong, figures where there are any."""

from enum import StrEnum

from msgspec import Struct

BYTES_PER_MIB = 1 << 20
STALE_S = 5.0
"""A look older than this says nothing of now; a loop that has not come round for so long hangs."""


class NodeState(StrEnum):
    """What the NVIDIA driver of the node lets be seen; only `ok` has GPUs."""

    OK = "ok"
    STARTING = "starting"
    STUCK = "stuck"
    LIBRARY_MISSING = "library_missing"
    LIBRARY_TOO_OLD = "library_too_old"
    DRIVER_MISSING = "driver_missing"
    DRIVER_MISMATCH = "driver_mismatch"
    NO_PERMISSION = "no_permission"
    NO_GPU = "no_gpu"
    FAILED = "failed"


NODE_HELP = {
    NodeState.OK: "the GPUs are read",
    NodeState.STARTING: "the first look has not come back yet",
    NodeState.STUCK: "a call into the driver does not come back; it often means a GPU that is about to be lost",
    NodeState.LIBRARY_MISSING: "there is no libnvidia-ml.so.1: no driver, or a container without it",
    NodeState.LIBRARY_TOO_OLD: "libnvidia-ml.so.1 lacks a function that every driver since 2017 has",
    NodeState.DRIVER_MISSING: "the kernel module is not loaded",
    NodeState.DRIVER_MISMATCH: "the library is another driver's: restart this process or, if that is no help, the node",
    NodeState.NO_PERMISSION: "this process may not open the NVIDIA devices",
    NodeState.NO_GPU: "the driver runs and knows no GPU",
    NodeState.FAILED: "the driver answered with an error of another kind",
}


class GpuState(StrEnum):
    """What matters most of one GPU or slice, the gravest first: it is in the first of these states that holds."""

    GPU_LOST = "gpu_lost"
    RESET_REQUIRED = "reset_required"
    NO_PERMISSION = "no_permission"
    FAILED = "failed"
    MEMORY_NOT_SUPPORTED = "memory_not_supported"
    MIG_WITHOUT_SLICES = "mig_without_slices"
    ECC_UNCORRECTED = "ecc_uncorrected"
    UTILISATION_NOT_SUPPORTED = "utilisation_not_supported"
    OK = "ok"


GPU_HELP = {
    GpuState.GPU_LOST: "it fell off the bus or is not there any more",
    GpuState.RESET_REQUIRED: "it does nothing before a reset",
    GpuState.NO_PERMISSION: "this process may not read it",
    GpuState.FAILED: "it answered with an error of another kind, or with figures that cannot be",
    GpuState.MEMORY_NOT_SUPPORTED: "it does not tell its memory, as where it shares the host's",
    GpuState.MIG_WITHOUT_SLICES: "it is cut up by MIG, into nothing yet",
    GpuState.ECC_UNCORRECTED: "it works, but has lost bits since the driver was loaded",
    GpuState.UTILISATION_NOT_SUPPORTED: "it works, but does not tell how busy it is, as with MIG",
    GpuState.OK: "it works and tells everything",
}


class Memory(Struct, frozen=True, kw_only=True, gc=False):
    """Memory of one GPU or slice, in bytes; what the driver keeps for itself is in neither `free` nor `used`."""

    total_bytes: int
    free_bytes: int
    used_bytes: int


class Utilisation(Struct, frozen=True, kw_only=True, gc=False):
    """How busy it was: shares of the time with a kernel running, 0 to 1.

    Attributes:
        last: of the last look.
        p50, p95: over the window, nearest rank.
        samples: looks in the window.
    """

    last: float
    p50: float
    p95: float
    samples: int


class Gpu(Struct, frozen=True, kw_only=True, gc=False):
    """One place that a process can take memory from: a GPU, or a slice of one that is cut up by MIG.

    Attributes:
        index: the GPU's, in NVML's order, which is that of nvidia-smi.
        slice_index: the slice's within it; None for a whole GPU.
        uuid: `GPU-...` or `MIG-...`; empty where it does not say.
        detail: what NVML said, where the state is not ok.
        memory, utilisation: None where it does not say.
        ecc_uncorrected: errors of the whole GPU's memory since the driver was loaded; None without ECC.
    """

    index: int
    slice_index: int | None = None
    uuid: str = ""
    name: str = ""
    state: GpuState = GpuState.OK
    detail: str = ""
    memory: Memory | None = None
    utilisation: Utilisation | None = None
    ecc_uncorrected: int | None = None

    @property
    def label(self) -> str:
        """`0` for a GPU, `0:1` for a slice of it."""
        return str(self.index) if self.slice_index is None else f"{self.index}:{self.slice_index}"


class Sample(Struct, frozen=True, kw_only=True):
    """One look at the whole node.

    Attributes:
        detail: what NVML said, where the state is not ok.
        taken_s: when the look began, by the sampler's clock.
        driver: its version; empty where it does not say.
    """

    state: NodeState
    taken_s: float
    detail: str = ""
    driver: str = ""
    gpus: tuple[Gpu, ...] = ()
