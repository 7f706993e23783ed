"""Headroom:  largest = max of free over the GPUs,  least = min of free,  sum = their sum.

A tensor lies on one GPU, so what is free on several does not add up: with 10 GiB free on each of eight GPUs, a request
for 20 GiB fits nowhere though 80 GiB are free. What can be placed anywhere is bounded by `largest`; an engine that
spans all of them takes as much on each, and is bounded by `least`. The sum is for capacity planning, and to show by how
much it deceives:  fragmentation = 1 - largest / sum, 0 where all that is free is on one GPU. A GPU that MIG has cut up
counts as its slices, for the same reason.
"""

from collections.abc import Iterable

from msgspec import Struct

from tidegate.agent.records import Gpu


class Headroom(Struct, frozen=True, kw_only=True, gc=False):
    """Free memory of several GPUs, in bytes, and how scattered it is, 0 to 1."""

    largest_bytes: int
    least_bytes: int
    sum_bytes: int
    fragmentation: float


def headroom(gpus: Iterable[Gpu]) -> Headroom | None:
    """Of those that tell their memory; None where none does."""
    free = [gpu.memory.free_bytes for gpu in gpus if gpu.memory is not None]
    if not free:
        return None
    largest, total = max(free), sum(free)
    return Headroom(
        largest_bytes=largest,
        least_bytes=min(free),
        sum_bytes=total,
        fragmentation=1.0 - largest / total if total else 0.0,
    )
