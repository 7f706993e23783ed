"""Names in order of a key, each with a cost: the first, the last, and how much stands before any key.

    order: (key, sequence number): of equal keys, the one added first goes first
    before(k) = entries whose key is at most k: what would stand before a newcomer of key k

A heap knows only its first, a sorted list costs its whole length at each change, and a balanced tree of Python objects
costs more than either at these sizes. So the rows lie in sorted blocks of at most 128, found by bisection over the
blocks' last rows: a change touches one block and that block's sum, and `before` adds up the sums of the blocks that
stand wholly before the key, one machine addition per block (10,000 rows are some 150 blocks). A block too full is cut
in half; one that fits into half a block together with its neighbour joins it, so that there are never more than about
one block per 32 rows, whatever was added and removed.

A block's sum is added up anew when the block changes, never adjusted: it does not drift, and an empty container costs
exactly 0.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Generic, TypeVar

from tidegate.admission.queues.base import Ahead

K = TypeVar("K", float, tuple[float, float])

_BLOCK_LEN_MAX = 128
_JOINED_LEN_MAX = _BLOCK_LEN_MAX // 2


class Ranked(Generic[K]):
    """Unique names by key; `len()` is how many, iteration is in order. Its bound is its caller's."""

    __slots__ = ("_added", "_blocks", "_costs_s", "_lasts", "_lens", "_rows", "_sums_s")

    def __init__(self) -> None:
        self._rows: dict[str, tuple[K, int, str]] = {}
        self._added = 0  # sequence number of the next row: larger than any in the container
        # of each block, by its index: its rows, their costs, and what bisection and sums need to know of it
        self._blocks: list[list[tuple[K, int, str]]] = []
        self._costs_s: list[list[float]] = []
        self._lasts: list[tuple[K, int, str]] = []
        self._lens: list[int] = []
        self._sums_s: list[float] = []

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, name: str) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        return (name for block in self._blocks for _, _, name in block)

    def __reversed__(self) -> Iterator[str]:
        return (name for block in reversed(self._blocks) for _, _, name in reversed(block))

    @property
    def cost_s(self) -> float:
        """The cost of all."""
        return sum(self._sums_s, 0.0)

    @property
    def first(self) -> str:
        """The name with the smallest key; there must be one."""
        return self._blocks[0][0][2]

    @property
    def last(self) -> str:
        """The name with the largest key; there must be one."""
        return self._blocks[-1][-1][2]

    def key(self, name: str) -> K:
        """The key of a name; KeyError where it is not in the container."""
        return self._rows[name][0]

    def before(self, key: K) -> Ahead:
        """How many have a key of at most `key`, and what they cost."""
        probe = (key, self._added, "")
        index = bisect_left(self._lasts, probe)
        requests, cost_s = sum(self._lens[:index]), sum(self._sums_s[:index], 0.0)
        if index < len(self._blocks):
            place = bisect_left(self._blocks[index], probe)
            requests, cost_s = requests + place, cost_s + sum(self._costs_s[index][:place])
        return Ahead(requests, cost_s)

    def add(self, name: str, key: K, cost_s: float = 0.0) -> None:
        """Take a name in; it must not be there, and its key must not be NaN, which has no place in any order."""
        assert name not in self._rows, f"{name} already has a place"
        assert key == key, f"the key of {name} is not a number"  # noqa: PLR0124
        row = self._rows[name] = (key, self._added, name)
        self._added += 1
        if not self._blocks:
            self._insert_block(0, [row], [cost_s])
            return
        index = min(bisect_left(self._lasts, row), len(self._blocks) - 1)
        place = bisect_left(self._blocks[index], row)
        self._blocks[index].insert(place, row)
        self._costs_s[index].insert(place, cost_s)
        if len(self._blocks[index]) > _BLOCK_LEN_MAX:
            self._split(index)
        self._measure(index)

    def remove(self, name: str) -> None:
        """Take a name out; KeyError where it is not in the container."""
        row = self._rows.pop(name)
        index = bisect_left(self._lasts, row)
        place = bisect_left(self._blocks[index], row)
        del self._blocks[index][place], self._costs_s[index][place]
        if not self._join(index):
            self._measure(index)

    def _split(self, index: int) -> None:
        half = len(self._blocks[index]) // 2
        self._insert_block(index + 1, self._blocks[index][half:], self._costs_s[index][half:])
        del self._blocks[index][half:], self._costs_s[index][half:]

    def _join(self, index: int) -> bool:
        """Make one block of this one and a neighbour where they are small enough together; False where none is."""
        for left in range(max(index - 1, 0), min(index + 1, len(self._blocks) - 1)):
            if len(self._blocks[left]) + len(self._blocks[left + 1]) <= _JOINED_LEN_MAX:
                self._blocks[left] += self._blocks[left + 1]
                self._costs_s[left] += self._costs_s[left + 1]
                self._delete_block(left + 1)
                self._measure(left)
                return True
        return False

    def _measure(self, index: int) -> None:
        """Bring what is known of a block up to date; an empty one goes."""
        block = self._blocks[index]
        if not block:
            self._delete_block(index)
            return
        self._lasts[index], self._lens[index] = block[-1], len(block)
        self._sums_s[index] = sum(self._costs_s[index])

    def _insert_block(self, index: int, rows: list[tuple[K, int, str]], costs_s: list[float]) -> None:
        self._blocks.insert(index, rows)
        self._costs_s.insert(index, costs_s)
        self._lasts.insert(index, rows[-1])
        self._lens.insert(index, len(rows))
        self._sums_s.insert(index, sum(costs_s))

    def _delete_block(self, index: int) -> None:
        del self._blocks[index], self._costs_s[index], self._lasts[index], self._lens[index], self._sums_s[index]
