"""Which GPUs a page is asked for: `?gpus=0,1`, `?gpus=0&gpus=1`, `?gpus=0:1` (a MIG slice), `?gpus=GPU-8a0f...`.

A policy's list of engines is separated by commas, so there the parameter is repeated. A number asks for the GPU or,
where MIG has cut it up, for all of its slices. Numbers are NVML's order, that of nvidia-smi: CUDA has one of its own
unless CUDA_DEVICE_ORDER=PCI_BUS_ID, and the numbers move when a GPU is lost for good. A UUID always means the same one.
"""

import re
from collections.abc import Iterable, Sequence

from tidegate.agent.records import Gpu

ASKED_MAX = 64
_NAME = re.compile(r"\d{1,3}(:\d{1,3})?|(GPU|MIG)-[0-9A-Za-z/-]{1,92}", re.ASCII)


class BadSelection(ValueError):
    """What is asked for is no list of GPUs; the message says what would be."""


class UnknownGpu(LookupError):
    """It asks for a GPU that is not here; the message says which there are."""


def asked(values: Iterable[str]) -> tuple[str, ...]:
    """The names in the values of the query's `gpus`, each of them a name or several with commas; () for all GPUs.

    Raises:
        BadSelection: one of them cannot be a name, or there are more than 64.
    """
    names = tuple(name.strip() for value in values for name in value.split(","))
    if len(names) > ASKED_MAX or not all(_NAME.fullmatch(name) for name in names):
        raise BadSelection(f"gpus: expected at most {ASKED_MAX} of NUMBER, NUMBER:SLICE or UUID, such as gpus=0,1")
    return names


def select(gpus: Sequence[Gpu], names: Sequence[str]) -> tuple[Gpu, ...]:
    """The GPUs of these names, in the order of the node; all of them for no names.

    Raises:
        UnknownGpu: a name fits none.
    """
    for name in names:
        if not any(_fits(gpu, name) for gpu in gpus):
            there = ", ".join(f"{gpu.label} {gpu.uuid}".strip() for gpu in gpus)
            raise UnknownGpu(f"gpus: there is no {name} here, but {there or 'nothing'}")
    return tuple(gpu for gpu in gpus if not names or any(_fits(gpu, name) for name in names))


def _fits(gpu: Gpu, name: str) -> bool:
    return name in {gpu.label, str(gpu.index), gpu.uuid}
