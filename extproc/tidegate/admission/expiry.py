"""Things that end at a known time and are often gone before it: a heap that forgets lazily.

Taking one out of the middle of a heap costs its length. So it stays, marked by its absence from `live`, until it comes
up or until more than half of the heap is dead and it is built anew: O(log n) to add, O(1) amortised to forget, at most
2 n + 64 entries.
"""

import heapq
from itertools import count

_DEAD_MAX = 64


class ExpiryHeap:
    """Keys by the time at which they end; adding a key again replaces its time."""

    __slots__ = ("_heap", "_live", "_order")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str]] = []
        self._live: dict[str, int] = {}
        self._order = count()

    def __len__(self) -> int:
        return len(self._live)

    def add(self, key: str, ends_at_s: float) -> None:
        order = next(self._order)
        self._live[key] = order
        heapq.heappush(self._heap, (ends_at_s, order, key))
        self._compact()

    def discard(self, key: str) -> None:
        if self._live.pop(key, None) is not None:
            self._compact()

    def next_s(self) -> float | None:
        """The earliest end; None where there is none."""
        heap = self._heap
        while heap and self._live.get(heap[0][2]) != heap[0][1]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop_ended(self, now_s: float) -> list[str]:
        """Remove and return the keys whose time has come, earliest first."""
        ended: list[str] = []
        while (ends_at_s := self.next_s()) is not None and ends_at_s <= now_s:
            key = heapq.heappop(self._heap)[2]
            del self._live[key]
            ended.append(key)
        return ended

    def _compact(self) -> None:
        if len(self._heap) > 2 * len(self._live) + _DEAD_MAX:
            self._heap = [entry for entry in self._heap if self._live.get(entry[2]) == entry[1]]
            heapq.heapify(self._heap)
