"""The reader of each kind of engine: one entry a kind."""

from tidegate.signals.base import PageReader
from tidegate.signals.generic import GenericReader
from tidegate.signals.gpu_agent import GpuAgentReader
from tidegate.signals.kserve import KserveReader
from tidegate.signals.llamacpp import LlamaCppReader
from tidegate.signals.ray_serve import RayServeReader
from tidegate.signals.sglang import SglangReader
from tidegate.signals.tgi import TgiReader
from tidegate.signals.triton import TritonReader
from tidegate.signals.trtllm import TrtllmReader
from tidegate.signals.vllm import VllmReader

_READERS: tuple[PageReader, ...] = (
    VllmReader(),
    SglangReader(),
    LlamaCppReader(),
    TritonReader(),
    TrtllmReader(),
    RayServeReader(),
    TgiReader(),
    KserveReader(),
    GpuAgentReader(),
)
_BY_KIND = {reader.kind: reader for reader in _READERS}
KINDS = (*_BY_KIND, GenericReader.kind)
"""Every kind there is a reader for, as `tidegate-engine` names them."""


def reader_of(kind: str, mapping: str | None = None) -> PageReader:
    """The reader of a kind; `mapping` is for the kind `prometheus`, which needs one, and for no other.

    Raises:
        ValueError: no such kind, or a mapping that is missing, out of place or wrong.
    """
    if kind == GenericReader.kind:
        if mapping is None:
            raise ValueError(f"{kind} needs a mapping")
        return GenericReader(mapping)
    if mapping is not None:
        raise ValueError(f"{kind} takes no mapping")
    if kind not in _BY_KIND:
        raise ValueError(f"no reader of {kind!r}")
    return _BY_KIND[kind]
