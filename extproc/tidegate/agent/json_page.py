"""`/gpus.json`: the last look at the GPUs asked for, with its age, for the service and for people."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from tidegate.agent.headroom import headroom
from tidegate.agent.records import BYTES_PER_MIB, NODE_HELP, Gpu, GpuState, NodeState, Utilisation
from tidegate.agent.sampler import Seen
from tidegate.agent.selection import UnknownGpu, select


class GpuEntry(Struct, frozen=True, kw_only=True):
    """One GPU or slice; null for what it does not tell."""

    gpu: str
    uuid: str
    name: str
    state: GpuState
    detail: str
    memory_total_mib: float | None
    memory_free_mib: float | None
    memory_used_mib: float | None
    utilisation: Utilisation | None
    ecc_uncorrected: int | None


class HeadroomEntry(Struct, frozen=True, kw_only=True):
    """Of the GPUs on this page; see headroom.py."""

    largest_mib: float
    least_mib: float
    sum_mib: float
    fragmentation: float


class Page(Struct, frozen=True, kw_only=True):
    """The whole page; figures in it are `age_s` seconds old."""

    state: NodeState
    meaning: str
    detail: str
    age_s: float
    interval_s: float
    window_s: float
    driver: str
    headroom: HeadroomEntry | None
    gpus: tuple[GpuEntry, ...]


def json_page(seen: Seen, names: Sequence[str], *, interval_s: float, window_s: float) -> bytes:
    """The page as UTF-8 JSON.

    Raises:
        UnknownGpu: a name fits none of the GPUs that are there; never while none can be seen.
    """
    try:
        gpus = select(seen.sample.gpus, names)
    except UnknownGpu:
        if seen.sample.state is NodeState.OK:
            raise
        gpus = ()
    page = Page(
        state=seen.state,
        meaning=NODE_HELP[seen.state],
        detail=seen.sample.detail,
        age_s=round(seen.age_s, 4),
        interval_s=interval_s,
        window_s=window_s,
        driver=seen.sample.driver,
        headroom=_headroom(gpus),
        gpus=tuple(_entry(gpu) for gpu in gpus),
    )
    return msgspec.json.format(msgspec.json.encode(page)) + b"\n"


def _headroom(gpus: Sequence[Gpu]) -> HeadroomEntry | None:
    found = headroom(gpus)
    if found is None:
        return None
    return HeadroomEntry(
        largest_mib=found.largest_bytes / BYTES_PER_MIB,
        least_mib=found.least_bytes / BYTES_PER_MIB,
        sum_mib=found.sum_bytes / BYTES_PER_MIB,
        fragmentation=found.fragmentation,
    )


def _entry(gpu: Gpu) -> GpuEntry:
    memory = gpu.memory
    return GpuEntry(
        gpu=gpu.label,
        uuid=gpu.uuid,
        name=gpu.name,
        state=gpu.state,
        detail=gpu.detail,
        memory_total_mib=None if memory is None else memory.total_bytes / BYTES_PER_MIB,
        memory_free_mib=None if memory is None else memory.free_bytes / BYTES_PER_MIB,
        memory_used_mib=None if memory is None else memory.used_bytes / BYTES_PER_MIB,
        utilisation=gpu.utilisation,
        ecc_uncorrected=gpu.ecc_uncorrected,
    )
