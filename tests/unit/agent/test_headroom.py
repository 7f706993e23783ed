"""Headroom: what fits is bounded by one GPU, never by the sum."""

from hypothesis import given
from hypothesis import strategies as st

from tidegate.agent.headroom import headroom
from tidegate.agent.records import Gpu, GpuState, Memory

GIB = 1 << 30


def gpu(index: int, free_bytes: int | None) -> Gpu:
    if free_bytes is None:
        return Gpu(index=index, state=GpuState.GPU_LOST)
    memory = Memory(total_bytes=80 * GIB, free_bytes=free_bytes, used_bytes=80 * GIB - free_bytes)
    return Gpu(index=index, memory=memory)


@given(free=st.lists(st.none() | st.integers(0, 80 * GIB), max_size=16))
def test_bounds_of_what_fits(free: list[int | None]) -> None:
    """A request fits on some GPU where it is no larger than the largest, on all where no larger than the least."""
    known = [each for each in free if each is not None]
    found = headroom(gpu(index, each) for index, each in enumerate(free))
    if not known:
        assert found is None
        return
    assert found is not None
    for request in {0, GIB, found.largest_bytes, found.largest_bytes + 1, found.least_bytes, found.least_bytes + 1}:
        assert any(each >= request for each in known) == (request <= found.largest_bytes)
        assert all(each >= request for each in known) == (request <= found.least_bytes)
    assert found.least_bytes <= found.largest_bytes <= found.sum_bytes
    assert found.sum_bytes == sum(known)
    assert 0.0 <= found.fragmentation <= 1.0 - 1.0 / len(known) + 1e-12


def test_the_sum_deceives() -> None:
    """Ten gigabytes on each of eight GPUs have no room for twenty."""
    found = headroom(gpu(index, 10 * GIB) for index in range(8))
    assert found is not None
    assert (found.largest_bytes, found.sum_bytes, found.fragmentation) == (10 * GIB, 80 * GIB, 0.875)


def test_nothing_free_is_not_scattered() -> None:
    """Full GPUs have no headroom, and no fragmentation either."""
    found = headroom([gpu(0, 0), gpu(1, 0)])
    assert found is not None
    assert (found.largest_bytes, found.fragmentation) == (0, 0.0)
