"""The page of `tidegate agent`: free memory of the GPU that has the least, of those that the page is about.

An engine that spans several GPUs takes as much on each, so the one with the least is what bounds it. The page's address
says which GPUs an engine uses, `metrics=http://node:9004/gpus.json?gpus=0&gpus=1`; without, it is all of the node. A
page whose figures are older than 5 s by the agent's own clock says nothing of now: the driver hangs.
"""

import msgspec
from msgspec import Struct

from tidegate.admission.reading import EngineReading
from tidegate.errors import HalfPage

AGE_S_MAX = 5.0
_SHOWN_CHARS_MAX = 80


class _Gpu(Struct, frozen=True, gc=False):
    gpu: str
    state: str
    memory_free_mib: float | None = None


class _Page(Struct, frozen=True):
    state: str
    age_s: float
    gpus: list[_Gpu]


class GpuAgentReader:
    """Reads `/gpus.json`."""

    kind = "gpu-agent"
    path = "/gpus.json"

    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder(_Page).decode

    def read(self, page: bytes) -> EngineReading:
        """What the page says; HalfPage where the node, one of its GPUs or the sample's age is not as it should be."""
        try:
            found = self._decode(page)
        except (msgspec.DecodeError, RecursionError) as error:
            raise HalfPage(f"no page of tidegate agent: {str(error)[:_SHOWN_CHARS_MAX]}") from error
        if found.state != "ok":
            raise HalfPage(f"the GPU node is {found.state[:_SHOWN_CHARS_MAX]!r}")
        if not 0.0 <= found.age_s <= AGE_S_MAX:
            raise HalfPage(f"age_s is {found.age_s:g}: figures older than {AGE_S_MAX:g} s say nothing of now")
        if not found.gpus:
            raise HalfPage("gpus is empty")
        return EngineReading(memory_free_mib=min(_free_mib(gpu) for gpu in found.gpus))


def _free_mib(gpu: _Gpu) -> float:
    if gpu.memory_free_mib is None or gpu.memory_free_mib < 0.0:
        name, state = gpu.gpu[:_SHOWN_CHARS_MAX], gpu.state[:_SHOWN_CHARS_MAX]
        raise HalfPage(f"GPU {name!r} does not tell its free memory; it is {state!r}")
    return gpu.memory_free_mib
